"""Webhooks: who subscribed, what is to be delivered, in which words, when again, and whereto it may go.

Deliveries are written by triggers on `jobs` and `batches` (migration 0003), in the transaction that ends the job or the
batch: no transition knows of them. Nothing here opens a connection to a receiver; that is `workers/egress.py`.
"""
