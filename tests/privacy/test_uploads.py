"""Raw uploads: sealed, of one promise, of bounded size, and as bytes that are known again."""

from __future__ import annotations

import re
import struct
from dataclasses import replace

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, UnsealedReleaseError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import RawUpload, decode_upload, encode_upload, require_admissible
from feducb.protocol import messages
from feducb.trust import CONTROLLER, NOBODY

TERMS = Terms(
    problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, trust=CONTROLLER, quiet=1
)
ACTIONS, REWARDS = np.array([[0.6, 0.8], [1.0, 0.0]]), np.array([0.5, -1.0])


def _upload(terms: Terms = TERMS) -> RawUpload:
    agent = DeployedPrivatizer(terms)
    agent.record(ACTIONS, REWARDS)
    return agent.upload()


def _bytes(season: int = 3, number: int = 2) -> bytes:
    return encode_upload(_upload(), season=season, number=number)


def test_nothing_of_what_is_inside_gets_into_a_log_by_accident() -> None:
    agent = DeployedPrivatizer(TERMS)
    agent.record(ACTIONS, REWARDS)
    for private in (agent, agent._state(), agent.upload(), DeployedPrivatizer(TERMS).release()):
        assert re.fullmatch(r"<feducb[\w.]+ object at 0x[0-9a-f]+>", repr(private)), repr(private)


def test_an_upload_is_the_batch_itself_and_the_agent_forgets_it() -> None:
    agent = DeployedPrivatizer(TERMS)
    agent.record(ACTIONS, REWARDS)
    batch, fine = agent._batch.tolist(), 2.0 ** (16 - agent.certificate.exponent)
    upload = agent.upload()
    assert upload.values.tolist() == batch
    exact = TERMS.model.flatten(ACTIONS, REWARDS, TERMS.weight) * fine
    np.testing.assert_array_equal(upload.values, np.rint(exact).sum(axis=0))
    assert (agent.pending, agent.upload().values.tolist()) == (0, [0] * 5)
    assert agent.released == 0  # handing over is not releasing: the controller counts


def test_the_layout_of_its_bytes() -> None:
    payload = _bytes()
    mark, dim, season, number, exponent, promise = struct.unpack_from("<4sIIIi8s", payload)
    assert (mark, dim, season, number) == (b"RAW2", 2, 3, 2)
    assert (exponent, promise) == (TERMS.certificate().exponent, TERMS.digest())
    values = struct.unpack("<5q", payload[28:])
    assert list(values) == _upload().values.tolist()


def test_bytes_read_back_as_what_they_were() -> None:
    season, number, upload = decode_upload(_bytes(7, 9), TERMS)
    assert (season, number) == (7, 9)
    assert upload.values.tolist() == _upload().values.tolist()
    assert encode_upload(upload, season=7, number=9) == _bytes(7, 9)


@pytest.mark.parametrize(
    "payload",
    [b"", b"RAW2", _bytes()[:-1], _bytes() + b"\0", b"RAW3" + _bytes()[4:], _bytes()[:20] + _bytes()[28:]],
    ids=["empty", "mark", "short", "long", "another mark", "earlier head, later mark"],
)
def test_what_is_no_upload_is_refused(payload: bytes) -> None:
    with pytest.raises(ConfigurationError, match="RAW2 and 68 bytes in all"):
        decode_upload(payload, TERMS)


def test_only_a_trusted_controller_reads_one_and_nobody_takes_it_for_a_release() -> None:
    with pytest.raises(UnsealedReleaseError, match="only a trusted controller reads raw uploads"):
        decode_upload(_bytes(), replace(TERMS, trust=NOBODY))
    with pytest.raises(ValueError, match="message has"):
        messages.decode(_bytes())
    with pytest.raises(UnsealedReleaseError, match="RawUpload is no message"):
        messages.encode(_upload())  # type: ignore[arg-type]


@pytest.mark.parametrize("seal", [None, object(), "seal"])
def test_nobody_else_builds_one(seal: object) -> None:
    with pytest.raises(UnsealedReleaseError, match="only an agent that trusts the controller"):
        RawUpload(dim=2, exponent=-18, promise=TERMS.digest(), values=np.zeros(5, np.int64), seal=seal)


def test_an_earlier_version_s_is_known_again_and_enters_nothing() -> None:
    """It did not say what its agent promises, so nobody knows whether the noise is enough."""
    now = _bytes()
    earlier = b"RAW1" + now[4:20] + now[28:]
    season, number, upload = decode_upload(earlier, TERMS)
    assert (season, number, upload.promise) == (3, 2, None)
    assert upload.values.tolist() == _upload().values.tolist()
    controller = DeployedPrivatizer(TERMS)
    before = controller.dump()
    with pytest.raises(ConfigurationError, match="of an earlier version of feducb"):
        controller.receive(upload)
    assert controller.dump() == before
    with pytest.raises(ConfigurationError, match="one that says what its agent promises"):
        encode_upload(upload, season=3, number=2)


@pytest.mark.parametrize(
    "promised",
    [
        replace(TERMS, budget=Budget(epsilon=1.1, delta=1e-6)),
        replace(TERMS, records_per_person=2),
        replace(TERMS, agents_per_person=2),
        replace(TERMS, releases=5),
        replace(TERMS, quiet=0),
        replace(TERMS, problem=Problem(dim=2, reward_bound=0.9)),
    ],
    ids=["epsilon", "records", "agents", "releases", "quiet", "bounds"],
)
def test_an_agent_that_promises_anything_else_does_not_enter(promised: Terms) -> None:
    """The controller's noise is for its own promise: for another it might be too small."""
    controller = DeployedPrivatizer(TERMS)
    before = controller.dump()
    with pytest.raises(ConfigurationError) as refused:
        controller.receive(_upload(promised))
    assert promised.digest().hex() in str(refused.value)
    assert TERMS.digest().hex() in str(refused.value)
    assert controller.dump() == before


def test_a_forged_head_does_not_change_the_grid() -> None:
    payload, exponent = _bytes(), TERMS.certificate().exponent
    finer = payload[:16] + struct.pack("<i", exponent + 1) + payload[20:]
    wider = payload[:4] + struct.pack("<I", 3) + payload[8:]
    controller = DeployedPrivatizer(TERMS)
    for forged in (finer, wider):
        with pytest.raises(ConfigurationError, match="the controller's dimension and grid"):
            controller.receive(decode_upload(forged, TERMS)[2])
    controller.receive(decode_upload(payload, TERMS)[2])


def test_what_is_no_upload_does_not_enter() -> None:
    for wrong in (None, np.zeros(5), DeployedPrivatizer(replace(TERMS, trust=NOBODY)).release()):
        with pytest.raises(UnsealedReleaseError, match="only a trusted controller receives"):
            DeployedPrivatizer(TERMS).receive(wrong)  # type: ignore[arg-type]


def test_sizes_are_bounded_both_ways_and_to_the_last_unit() -> None:
    for sign in (1, -1):
        require_admissible(np.array([0, sign * 2**60]))
        with pytest.raises(ConfigurationError, match=r"up to 2\^61.*, expected at most 2\^60"):
            require_admissible(np.array([0, sign * (2**60 + 1)]))
    require_admissible(np.array([], dtype=np.int64))


def test_a_batch_that_is_too_large_is_not_handed_over_and_not_lost() -> None:
    agent = DeployedPrivatizer(TERMS)
    agent.record(ACTIONS, REWARDS)
    agent._batch[0] += 2**60
    before = agent.dump()
    with pytest.raises(ConfigurationError, match="a coordinate"):
        agent.upload()
    assert agent.dump() == before


def test_so_many_uploads_and_no_more_also_after_a_restart() -> None:
    """With the bound on each, a sum of 2^17 stays below 2^77 and fits the grid."""
    controller, upload = DeployedPrivatizer(TERMS), _upload()
    controller._uploads = 2**17 - 1
    controller.receive(upload, records=2)
    again = DeployedPrivatizer(TERMS)
    again.load(controller.dump())
    for full in (controller, again):
        before = full.dump()
        with pytest.raises(ConfigurationError, match="uploads is 131073, expected at most 131072 in"):
            full.receive(upload)
        assert full.dump() == before
    assert again.pending == 2
    controller.release()  # the count is over the season, not over a batch
    with pytest.raises(ConfigurationError, match="in one season"):
        controller.receive(upload)
