"""The demo's tickets: forms no other tenant's summaries have, held-out tickets unseen in training, exact prompts."""

from itertools import islice

import pytest

from demo.tickets import (
    TENANTS,
    DemoTenant,
    Ticket,
    chat_messages,
    form_ok,
    held_out_tickets,
    job_body,
    order_number_ok,
    training_tickets,
)

each_tenant = pytest.mark.parametrize("tenant", TENANTS, ids=lambda tenant: tenant.id)
ACME, GLOBEX, INITECH, HANBIT = TENANTS


@each_tenant
def test_a_true_summary_has_the_form_of_its_own_tenant_only(tenant: DemoTenant) -> None:
    for ticket in held_out_tickets(tenant, 200):
        assert [other.id for other in TENANTS if form_ok(other, ticket.summary)] == [tenant.id]


@each_tenant
def test_a_ticket_itself_has_no_form(tenant: DemoTenant) -> None:
    for ticket in held_out_tickets(tenant, 50):
        assert not any(form_ok(other, ticket.document) for other in TENANTS)


@pytest.mark.parametrize(
    ("tenant", "text"),
    [
        (ACME, "[DAMAGED] order 1234: kettle; next step: refund"),
        (ACME, "damaged: order 1234: kettle; next step: refund."),
        (ACME, "[DAMAGED] order 1234: kettle; next step: refund.\nAnything else?"),
        (GLOBEX, "- order 1234\n- tent: damaged"),
        (GLOBEX, "- order 1234\n- tent: damaged\n- customer asks for refund\n- thanks"),
        (GLOBEX, "- order 1234\n- tent: damaged\ncustomer asks for refund"),
        (INITECH, '{"order": "1234", "item": "laptop", "issue": "damaged"}'),
        (INITECH, '{"order": "1234", "item": "laptop", "issue": "damaged", "action": "refund"'),
        (INITECH, '{"order": "1234",\n"item": "laptop", "issue": "damaged", "action": "refund"}'),
        (INITECH, '["order", "item", "issue", "action"]'),
        (HANBIT, "주문 1234: 가방 파손, 환불"),
        (HANBIT, "order 1234: 가방 파손, 환불 요청"),
    ],
)
def test_a_form_is_exact(tenant: DemoTenant, text: str) -> None:
    assert not form_ok(tenant, text)


def test_white_space_around_a_summary_does_not_spoil_its_form() -> None:
    assert form_ok(ACME, "\n[DAMAGED] order 1234: kettle; next step: refund. ")


@each_tenant
def test_training_never_sees_a_held_out_ticket(tenant: DemoTenant) -> None:
    held_out = held_out_tickets(tenant, 1000)
    trained = list(islice(training_tickets(tenant, seed=0), 5000))
    assert {ticket.order_number for ticket in held_out}.isdisjoint(ticket.order_number for ticket in trained)
    assert {ticket.document for ticket in held_out}.isdisjoint(ticket.document for ticket in trained)


@each_tenant
def test_the_same_seed_gives_the_same_tickets(tenant: DemoTenant) -> None:
    def first(seed: int) -> list[Ticket]:
        return list(islice(training_tickets(tenant, seed), 20))

    assert first(3) == first(3)
    assert first(3) != first(4)
    assert held_out_tickets(tenant, 40)[:12] == held_out_tickets(tenant, 12)


@each_tenant
def test_held_out_tickets_have_an_order_number_each(tenant: DemoTenant) -> None:
    assert len({ticket.order_number for ticket in held_out_tickets(tenant, 1000)}) == 1000


def test_more_held_out_tickets_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="only 1286 held-out"):
        held_out_tickets(ACME, 1287)


@each_tenant
def test_a_ticket_and_its_summary_name_the_order(tenant: DemoTenant) -> None:
    for ticket in held_out_tickets(tenant, 50):
        assert ticket.order_number in ticket.document
        assert order_number_ok(ticket, ticket.summary)


@pytest.mark.parametrize("text", ["order 1235", "order 12345", "order 1234 or 1235", "no number"])
def test_another_order_number_is_noticed(text: str) -> None:
    assert not order_number_ok(Ticket("order 1234", "", "1234"), text)


def test_korean_particles_fit_the_word_before_them() -> None:
    documents = " ".join(ticket.document for ticket in held_out_tickets(HANBIT, 300))
    assert "가방이 " in documents
    assert "의자가 " in documents
    assert "가방가" not in documents
    assert "의자이" not in documents


def test_english_tenants_send_documents_and_the_korean_one_sends_messages() -> None:
    for tenant in TENANTS:
        ticket = held_out_tickets(tenant, 1)[0]
        body = job_body(tenant, ticket)
        assert body["model"] == tenant.adapter
        assert body["temperature"] == 0
        if tenant is HANBIT:
            assert body["messages"] == [{"role": "user", "content": f"고객 문의를 요약해줘: {ticket.document}"}]
            assert "document" not in body
        else:
            assert body["document"] == ticket.document
            assert "messages" not in body


def test_a_document_is_trained_on_as_the_base_template_renders_it() -> None:
    assert chat_messages(ACME, "It broke.") == [
        {"role": "system", "content": "You summarize support tickets."},
        {"role": "user", "content": "Summarize this ticket:\nIt broke."},
    ]
