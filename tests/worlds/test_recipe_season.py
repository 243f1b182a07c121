"""Actions that come and go within a season: what may change of a recipe, and what it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb import ConfigurationError
from feducb.worlds.features import Category, Number, Recipe, model_of
from feducb.worlds.features.encoder import Encoder
from feducb.worlds.features.redundant import redundant
from feducb.worlds.features.season import added_to, fixed_part, require_continued, slots_left, with_added
from feducb.worlds.features.wording import counting_places, entries_of, typical_actions

SHOP = Recipe(
    context=(Number("age", 0.0, 100.0, missing="zero"),),
    action=(Category("offer", ("none", "gift"), reserve=2),),
    terms=(("offer",), ("offer", "age")),
)


def test_room_is_there_from_the_start() -> None:
    """Entries, bounds and known zeros do not change with the names, and no vector changes its length."""
    later = with_added(with_added(SHOP, "bundle"), "points")
    assert SHOP.dim == later.dim == 8
    assert model_of(SHOP) == model_of(later)
    assert (slots_left(SHOP), slots_left(later)) == (2, 0)
    before, after = (Encoder(one).vectors({"age": 70}) for one in (SHOP, later))
    assert np.array_equal(after[:2], before)
    assert np.array_equal(np.abs(after).sum(axis=0) > 0, np.ones(8, dtype=bool))
    with pytest.raises(ConfigurationError, match="all 2 in reserve are taken"):
        with_added(later, "more")


def test_who_is_retired_is_not_offered_under_another_name_and_a_name_stands_for_what_is_declared() -> None:
    """An id of one's own must not bring back what is retired, nor a declared one show something else."""
    recipe = Recipe(
        context=(),
        action=(Category("offer", ("none", "gift", "bundle")), Number("price", 0, 9, missing="own")),
        terms=(("offer",), ("price",)),
        actions=("none", "gift", {"id": "big", "offer": "bundle", "price": 5}),  # type: ignore[arg-type]
    )
    retired, encoder = Encoder(replace(recipe, retired=("gift", "big"))), Encoder(recipe)
    own: list[dict[str, Any]] = [{"id": "x", "offer": "gift"}, {"id": "dear", "offer": "bundle", "price": 9}]
    for action, level in zip((*own, "gift", "big"), ("gift", "bundle", "gift", "big"), strict=True):
        assert len(encoder.offers([action]).names) == 1
        assert len(retired.vectors({}, [action])) == 1  # in a log it is what it was
        with pytest.raises(ConfigurationError, match=rf"actions\[1\] is '{level}, which is retired'"):
            retired.offers(["none", action])
    for action in ({"id": "gift", "offer": "none"}, {"id": "big", "offer": "gift"}):
        with pytest.raises(ConfigurationError, match=r"actions\[0\]\.offer .* which the recipe declares for"):
            encoder.offers([action])
    today = encoder.offers([{"id": "big", "price": 4}, {"id": "gift", "offer": "gift"}])  # as it is today
    assert [action["price"] for action in today.actions] == [4, None]
    kept = replace(recipe, retired=("gift",), actions=(*recipe.actions, {"id": "present", "offer": "gift"}))
    assert Encoder(kept).offers([{"id": "x", "offer": "gift"}]).names == ("x",)  # another one is that too


def test_a_season_goes_on_with_added_and_retired_actions_and_nothing_else() -> None:
    """The digest of what is kept stays; names keep their entries, and come in one order."""
    added = with_added(SHOP, "bundle")
    gone = replace(added, retired=("gift",))
    assert fixed_part(gone) == SHOP
    for later in (added, gone):
        require_continued(SHOP, later)
        assert fixed_part(later).fingerprint == SHOP.fingerprint != later.fingerprint
    require_continued(gone, added)  # it may come back
    assert added_to(gone) == ("bundle",)
    for other in (
        SHOP,  # a name that was added is gone
        with_added(SHOP, "points"),  # another one has its entry
        replace(added, parameter_bound=2.0),
        replace(added, terms=(("offer", "age"), ("offer",))),
        replace(added, action=(Category("offer", ("none", "gift"), reserve=3, added=("bundle",)),)),
    ):
        with pytest.raises(ConfigurationError):
            require_continued(added, other)


def test_columns_of_added_actions() -> None:
    """Where actions are declared with columns, a new one brings its own, and keeps them."""
    priced = Recipe(
        context=(),
        action=(Category("offer", ("none", "gift"), reserve=1), Number("price", 0.0, 10.0)),
        terms=(("offer",), ("price",)),
        actions=({"id": "none", "price": 0.0}, {"id": "gift", "price": 4.0}),
    )
    later = with_added(priced, {"id": "bundle", "price": 9.0})
    require_continued(priced, later)
    assert later.offered == ("none", "gift", "bundle")
    assert Encoder(later).vectors({})[2, 3] == pytest.approx(0.8 / np.sqrt(2.0))
    dearer = replace(later, actions=(*later.actions[:2], {"id": "bundle", "price": 8.0}))
    with pytest.raises(ConfigurationError, match="action bundle"):
        require_continued(later, dearer)


def test_retired_actions_are_not_offered_but_are_still_read() -> None:
    """Nobody is shown one, by name neither; what was kept of one is read as before."""
    gone = replace(SHOP, retired=("gift",))
    encoder = Encoder(gone)
    assert (gone.offered, gone.declared) == (("none",), ("none", "gift"))
    assert encoder.offers().names == ("none",)
    with pytest.raises(ConfigurationError, match="gift, which is retired"):
        encoder.offers(["none", "gift"])
    assert encoder.laid_out(["gift"]).names == ("gift",)
    assert encoder.laid_out(None).names == ("none", "gift")
    for retired in (("none", "gift"), ("other",), ("gift", "gift")):
        with pytest.raises(ConfigurationError, match="retired"):
            replace(SHOP, retired=retired)


def test_files_say_only_what_is_used() -> None:
    """A recipe without room has the fingerprint it always had, and one with room comes back the same."""
    plain = Recipe.of_actions(("a", "b"))
    assert plain.fingerprint == "4617860346f61385"
    assert "reserve" not in plain.to_json()
    assert "retired" not in plain.to_json()
    one = replace(with_added(Recipe.of_actions(("a", "b"), reserve=3), "c"), retired=("a",))
    assert Recipe.from_json(one.to_json()) == one
    with pytest.raises(ConfigurationError, match="room"):
        Recipe.of_actions(("a",), added=("b",))
    with pytest.raises(ConfigurationError, match="names that are new"):
        Recipe.of_actions(("a",), reserve=1, added=("a",))
    with pytest.raises(ConfigurationError, match="which names actions"):
        replace(SHOP, context=(Category("country", ("DE",), reserve=1),), terms=(("offer",),))


def test_words_for_entries_in_reserve() -> None:
    """They say that nobody has them yet; shares are read of whatever is shown, retired or not."""
    later = replace(with_added(SHOP, "bundle"), retired=("gift",))
    words = [entry.name.partition(",")[0] for entry in entries_of(later)][:4]
    assert words == ["offer none", "offer gift", "offer bundle", "offer in reserve 4"]
    assert len(typical_actions(later)) == 3
    counting = counting_places(later)
    assert counting is not None
    assert len(counting.everything) == 4
    assert [places.tolist() for places in counting.places] == [[0], [1], [2]]


def test_terms_that_others_contain() -> None:
    """Entries of one-hots add up to 1: what is a sum of others' entries is found, and nothing else."""
    country = Category("country", ("DE", "FR"), unknown="other", missing="own")
    lean = Category("device", ("phone", "desktop"), unknown="zero", missing="zero")
    offer, age = Category("offer", ("a", "b")), Number("age", 0.0, 1.0)

    def found(*terms: str) -> dict[str, str]:
        plain = tuple(() if term == "1" else tuple(term.split("*")) for term in terms)
        recipe = Recipe(context=(country, lean, age), action=(offer,), terms=plain)
        rows: dict[str, Any] = {
            "country": (["DE"] * 2 + ["FR"] * 2 + ["PT"] * 2 + [None] * 2) * 4,
            "device": ["phone", "desktop", "x", "x"] * 8,
        }
        rows |= {"age": list(np.linspace(0.0, 1.0, 32)), "offer": (["a"] * 8 + ["b"] * 8) * 2}
        lost = recipe.dim - np.linalg.matrix_rank(recipe.rows(rows))
        assert bool(lost) == bool(redundant(recipe))  # along so many directions no vector points
        return redundant(recipe)

    assert found("1", "offer", "offer*age") == {"1": "offer"}
    assert found("offer", "offer*country") == {"offer": "offer*country"}
    assert found("1", "offer*country", "offer") == {"1": "offer", "offer": "offer*country"}
    assert found("offer", "offer*age", "offer*device") == {}
