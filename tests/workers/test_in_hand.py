"""What a worker's threads are busy with."""

from __future__ import annotations

import uuid

from workers.in_hand import InHand


def test_a_job_in_two_hands_stays_until_both_let_go() -> None:
    in_hand, job, other = InHand(), uuid.uuid4(), uuid.uuid4()
    with in_hand.job(job):
        with in_hand.job(job), in_hand.job(other):
            assert in_hand.ids() == {job, other}
        assert in_hand.ids() == {job}
    assert in_hand.ids() == set()
