"""One conformance suite that every model passes, and the skeleton in docs/extending/model.md."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.models import LINEAR, MODELS, Model, require_model
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.types import Array, zeros
from page_code import run_page

SKELETON: Model = run_page("extending/model.md")["Costs"]()
PARSED = (
    *("blocks:1", "blocks:3", "blocks:1+2", "public:linear", "public:blocks:3"),
    *("zeros:a3", "zeros:a2+1", "zeros:3", "public:zeros:a2+1"),
)  # all fit d = 3
EVERY = {**MODELS, **{name: require_model(name) for name in PARSED}, "the page's skeleton": SKELETON}
ALL = pytest.mark.parametrize("model", list(EVERY.values()), ids=list(EVERY))
PROBLEMS = [
    feducb.Problem(dim=3),
    feducb.Problem(dim=1),
    feducb.Problem(dim=2, action_bound=0.5, reward_bound=3.0),
    feducb.Problem(dim=4, action_bound=2.0, reward_bound=0.5, parameter_bound=3.0),
]
BOUNDS = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"d{one.dim}L{one.action_bound:g}")
TERMS = Terms(problem=PROBLEMS[0], budget=feducb.Budget(epsilon=1e4, delta=0.5), releases=2)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The skeleton has a line in the registry, as its page asks for."""
    monkeypatch.setitem(MODELS, SKELETON.name, SKELETON)


def _require_fit(model: Model, dim: int) -> None:
    """Blocks are of some dimensions only."""
    try:
        model.coordinates(dim)
    except ConfigurationError:
        pytest.skip("blocks that do not add up to d")


def _records(problem: feducb.Problem, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Records within the bounds, most of them at the edge."""
    directions = rng.normal(size=(count, problem.dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    length = np.where(rng.random(count) < 0.7, 1.0, rng.random(count)) * problem.action_bound
    reward = np.where(rng.random(count) < 0.7, np.sign(rng.normal(size=count)), rng.uniform(-1, 1, count))
    return directions * length[:, None], reward * problem.reward_bound


@ALL
def test_it_is_a_value_and_its_name_stands_for_it(model: Model) -> None:
    assert model == require_model(model.name) == require_model(model)
    assert hash(model) == hash(require_model(model.name))
    assert model.name in PARSED or MODELS[model.name] is model is require_model(model.name)
    with pytest.raises((AttributeError, TypeError)):  # one object serves all: nothing may be set
        model.name = "another"  # type: ignore[misc]


def test_what_is_no_model_is_named() -> None:
    for wrong in ("cubic", 3, None):
        with pytest.raises(ConfigurationError, match=r"model is .*, expected linear.* or \w+"):
            require_model(wrong)  # type: ignore[arg-type]


@ALL
@BOUNDS
def test_no_two_records_are_further_apart_than_the_radius_and_none_is_longer(
    model: Model, problem: feducb.Problem, rng: np.random.Generator
) -> None:
    _require_fit(model, problem.dim)
    actions, rewards = _records(problem, rng, 300)
    if model.contexts == "public":  # neighbours have one action
        actions[:] = actions[0] * problem.action_bound / np.linalg.norm(actions[0])
    for weight in (0.3, 1.0, model.weight(problem)):
        flat = model.flatten(actions, rewards, weight)
        assert flat.shape == (300, model.coordinates(problem.dim))
        farthest = math.sqrt(2.0) * model.radius(problem, weight) * (1.0 + 1e-12)
        assert np.linalg.norm(flat[:, None] - flat[None], axis=2).max() <= farthest
        assert np.linalg.norm(flat[:, model.noisy(problem.dim)], axis=1).max() <= farthest


@ALL
@pytest.mark.parametrize("problem", [one for one in PROBLEMS if one.dim > 1], ids=lambda one: f"d{one.dim}")
def test_the_radius_is_not_wasted(model: Model, problem: feducb.Problem) -> None:
    """Some pair comes within a hundredth of it, in two dimensions or more."""
    _require_fit(model, problem.dim)
    weight = model.weight(problem)
    angles = np.linspace(0.0, math.pi, 400)
    actions = np.zeros((400, problem.dim))
    actions[:, -2], actions[:, -1] = np.cos(angles), np.sin(angles)
    actions *= problem.action_bound
    one = model.flatten(actions[:1], np.array([problem.reward_bound]), weight)
    others = model.flatten(actions, np.full(400, -problem.reward_bound), weight)
    reached = np.linalg.norm((others - one)[:, model.noisy(problem.dim)], axis=1)
    reached = reached[0] if model.contexts == "public" else reached.max()
    assert reached >= 0.99 * math.sqrt(2.0) * model.radius(problem, weight)


@ALL
@BOUNDS
def test_reading_a_sum_of_flat_vectors_gives_the_sums_of_records(
    model: Model, problem: feducb.Problem, rng: np.random.Generator
) -> None:
    _require_fit(model, problem.dim)
    actions, rewards = _records(problem, rng, 50)
    weight = model.weight(problem)
    flat = model.flatten(actions, rewards, weight).sum(axis=0)
    gram, moment = model.read(flat, dim=problem.dim, weight=weight)
    raw = model.add(zeros(problem.dim), actions, rewards)
    np.testing.assert_allclose(gram, raw.gram, atol=1e-11)
    np.testing.assert_allclose(moment, raw.moment, atol=1e-11)
    assert raw.count == 50
    # one record at a time, in any order: nobody's records move what others put in
    apart = [model.flatten(actions[[k]], rewards[[k]], weight)[0] for k in reversed(range(50))]
    np.testing.assert_array_equal(model.flatten(actions, rewards, weight), apart[::-1])


@ALL
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_reading_is_linear_symmetric_and_keeps_units_and_leading_axes(
    model: Model, dim: int, rng: np.random.Generator
) -> None:
    _require_fit(model, dim)
    one, other = rng.normal(size=(2, 3, 4, model.coordinates(dim)))
    grams, moments = model.read(one + 2.0 * other, dim=dim, weight=0.7)
    for part, whole in ((0, grams), (1, moments)):
        apart = [model.read(flat, dim=dim, weight=0.7)[part] for flat in (one, other)]
        np.testing.assert_allclose(whole, apart[0] + 2.0 * apart[1], atol=1e-12)
        units = model.read(one, dim=dim, weight=0.7, unit=3.0)[part]
        np.testing.assert_allclose(units, 3.0 * apart[0], atol=1e-12)
        single = model.read(one[1, 2], dim=dim, weight=0.7)[part]
        np.testing.assert_array_equal(single, apart[0][1, 2])
    np.testing.assert_array_equal(grams, np.swapaxes(grams, -1, -2))


@ALL
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_every_coordinate_is_read_somewhere_of_its_own(model: Model, dim: int) -> None:
    """Noise on a coordinate that nobody reads, or that another shares, would be noise in vain."""
    _require_fit(model, dim)
    count = model.coordinates(dim)
    seen = set()
    for unit in np.eye(count):
        gram, moment = model.read(unit, dim=dim, weight=1.0)
        seen.add((tuple(map(tuple, np.argwhere(gram))), tuple(map(tuple, np.argwhere(moment)))))
    assert len(seen) == count


@ALL
def test_unit_noise_has_variance_two_on_the_diagonal_and_one_off_it(model: Model) -> None:
    """20,000 draws: each variance is known to 1 %, so that 6 % off is a false alarm below 1e-8."""
    rng = np.random.default_rng(12)
    draws = rng.standard_normal((20_000, model.coordinates(3)))
    gram, moment = model.read(draws, dim=3, weight=0.5, unit=math.sqrt(2.0))
    np.testing.assert_allclose(gram[:, [0, 1, 2], [0, 1, 2]].var(axis=0), 2.0, rtol=0.06)
    known_zeros = model.read(np.ones(model.coordinates(3)), dim=3, weight=1.0)[0] == 0.0
    expected = np.where(known_zeros, 0.0, 1.0)[[0, 0, 1], [1, 2, 2]]
    np.testing.assert_allclose(gram[:, [0, 0, 1], [1, 2, 2]].var(axis=0), expected, rtol=0.06)
    np.testing.assert_allclose(moment.var(axis=0), 4.0, rtol=0.06)  # 1/s²


@ALL
def test_what_is_deployed_releases_the_same_sums(model: Model, rng: np.random.Generator) -> None:
    """Noise is tiny at ε = 10⁴; twelve deviations never happen."""
    terms = replace(TERMS, model=model)
    assert terms.certificate().coordinates == model.coordinates(3)
    assert terms.certificate().sensitivity >= math.sqrt(2.0) * model.radius(terms.problem, terms.weight)
    door = DeployedPrivatizer(terms)
    actions, rewards = _records(terms.problem, rng, 40)
    door.record(actions, rewards)
    release = door.release()
    assert release.model == model.name
    values = np.ldexp(release.values.astype(np.float64), release.exponent)
    gram, moment = model.read(values, dim=3, weight=release.weight)
    raw, allowed = model.add(zeros(3), actions, rewards), 12.0 * math.sqrt(2.0 * release.variance)
    np.testing.assert_allclose(gram, raw.gram, atol=allowed)
    np.testing.assert_allclose(moment, raw.moment, atol=allowed / release.weight)


@ALL
def test_terms_keep_its_name_and_the_linear_one_goes_without_saying(model: Model) -> None:
    terms = replace(TERMS, model=model)
    plain = json.loads(terms.to_json())
    assert plain.get("model", "linear") == model.name
    assert ("model" in plain) is (model is not LINEAR)
    assert Terms.from_json(terms.to_json()) == replace(terms, mechanism=terms.factors.name)
    digests = {replace(TERMS, model=one).digest() for one in EVERY.values()}
    assert len(digests) == len({one.name for one in EVERY.values()})  # other models, other promises


def test_the_linear_digest_is_the_one_of_files_from_before_there_were_models() -> None:
    terms = Terms(problem=feducb.Problem(dim=2), budget=feducb.Budget(epsilon=1.0, delta=1e-6), releases=6)
    assert terms.digest().hex() == "6a15f50b70f10874"
    assert "model" not in terms.to_json()


@ALL
def test_it_plays_in_a_simulation_and_compiled_backends_refuse_what_they_do_not_know(model: Model) -> None:
    federation = feducb.Federation(problem=PROBLEMS[0], agents=2, model=model.name)  # type: ignore[arg-type]
    assert federation.model == model
    assert federation.as_dict().get("model", "linear") == model.name
    paper = feducb.PaperEnvironment(problem=PROBLEMS[0], arms=4)
    one_hots = feducb.OwnEnvironment(  # which every model takes
        problem=PROBLEMS[0],
        arms=3,
        theta=np.array([0.5, 0.1, 0.3]),
        draw=lambda _, __, rounds: np.broadcast_to(np.eye(3), (rounds, 3, 3)),
        pay=lambda rng, _, means: (rng.random(len(means)) < means).astype(float),
    )
    result = feducb.simulate(federation, paper if model is LINEAR else one_hots, horizon=40, runs=1)
    assert result.config["backend"] == ("reference" if model is not LINEAR else result.config["backend"])
    if model is not LINEAR:
        with pytest.raises(
            ConfigurationError, match=f"model {type(model).__name__} is not compiled, only Linear"
        ):
            feducb.simulate(federation, paper, horizon=40, runs=1, backend="cpu")


def test_costs_are_avoided() -> None:
    """Without noise, the skeleton's agents end up with less reward than those that want it."""
    problem = PROBLEMS[0]
    world = feducb.PaperEnvironment(problem=problem, arms=6)
    regrets = {
        model.name: feducb.simulate(
            feducb.Federation(problem=problem, agents=2, model=model, baseline="no-privacy"),
            world,
            horizon=400,
            runs=2,
            backend="reference",
        ).mean
        for model in (LINEAR, SKELETON)
    }
    assert regrets["costs"] > regrets["linear"]


def test_what_messages_and_logs_were_not_made_for_is_refused() -> None:
    release = DeployedPrivatizer(replace(TERMS, model=SKELETON)).release()
    with pytest.raises(ConfigurationError, match="model is 'costs', expected linear"):
        messages.encode(release)
    federation = feducb.Federation(problem=PROBLEMS[0], agents=2, model=SKELETON)
    with pytest.raises(ConfigurationError, match="model is 'costs', expected linear"):
        feducb.evaluate("actg175", federation)


def test_all_that_is_asked_of_a_model_is_in_its_interface() -> None:
    for name, attribute in itertools.product(EVERY, ("released_set", "printed")):
        assert callable(getattr(EVERY[name], attribute))


def test_a_model_is_refused_under_the_printed_rule() -> None:
    world = feducb.PaperEnvironment(problem=PROBLEMS[0], arms=4)
    for model in (SKELETON, require_model("blocks:3"), require_model("public:linear")):
        federation = feducb.Federation(problem=PROBLEMS[0], agents=2, model=model, mode="paper")
        with pytest.raises(ConfigurationError, match=f"model is '{model.name}', expected linear"):
            feducb.simulate(federation, world, horizon=20, runs=1)
