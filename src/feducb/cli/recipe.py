"""`feducb recipe init | show | add | retire`."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from feducb.cli.csv_file import open_csv
from feducb.cli.options import JsonFile, option
from feducb.cli.output import counted, facts_table, require_writable, screen_beside, write_json
from feducb.errors import ConfigurationError
from feducb.evaluation.survey import parse_context
from feducb.models import LINEAR, Model
from feducb.system import write_atomically
from feducb.worlds.features import Category, Column, Number, Recipe, as_text, model_of
from feducb.worlds.features.bounds import Derived, derive_bounds
from feducb.worlds.features.explain import explain, refuses
from feducb.worlds.features.proposal import Proposal, propose
from feducb.worlds.features.redundant import redundant
from feducb.worlds.features.season import added_to, fixed_part, slots_left, with_added

__all__ = ["app", "parse_range"]

app = typer.Typer(
    help="How visitors and actions become vectors: one file for evaluate, plan, agents and their logs.",
    no_args_is_help=True,
)

Answer = TypeVar("Answer")
_ROWS = 100_000  # that are looked at for the kinds of columns
_SYMBOLS = {"dim": "d", "action_bound": "L", "reward_bound": "B", "parameter_bound": "S"}


@app.command()
def init(
    log: Annotated[Path, typer.Argument(help="A CSV file with a header, of decisions that were made.")],
    action: str = option(..., "The column that names what was done."),
    context: list[str] | None = option(
        None,
        "What is known of a visitor, as columns: age:0:120,country:DE|FR,new:bool,zip:hash:16. Of a name "
        "alone the log tells the kind, and range or levels are asked for. May be repeated.",
        shown="all columns but those ignored",
    ),
    ignore: list[str] | None = option(
        None, "Columns that are no context: reward, propensity, agent, ids. May be repeated."
    ),
    public: list[str] | None = option(
        None,
        "Columns whose range or levels, as the log has them, are public: your word. They are read off then. "
        "May be repeated.",
    ),
    lean: bool = option(
        False,
        "What is missing or unknown counts as nothing, in place of an entry of its own: shorter vectors, and "
        "less noise.",
        "--lean",
    ),
    out: Path = option(Path("recipe.json"), "Where to write the recipe.", "--out", "-o"),
) -> None:
    """Propose a recipe from a log by the kinds of its columns; what must be public is asked for, not read."""
    if out.exists():
        raise ConfigurationError("--out", str(out), "a file that does not exist yet")
    given, out_of_it, read_off = parse_context(_listed(context)), _listed(ignore), _listed(public)
    known: dict[str, Column] = {name: one for name, one in given.items() if not isinstance(one, str)}
    columns = _columns(log)
    taken = list(given) or [name for name in columns if name not in (*out_of_it, action)]
    for name in (*taken, *out_of_it, *read_off):
        if name not in columns:
            raise ConfigurationError("column", name, f"one of those of {log.name}: {', '.join(columns)}")
    some = {name: columns[name] for name in (*taken, action) if name in columns}
    proposal = propose(some, action=action, known=known, public=read_off, lean=lean)
    if sys.stdin.isatty() and sys.stdout.isatty():
        _ask(proposal, columns)
    out.write_text(proposal.to_json(), encoding="utf-8")
    for note in proposal.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"wrote {out}")
    for one in proposal.open:
        what = "low and high" if one["kind"] == "number" else "levels"
        typer.echo(f"  to be filled in: {what} of {one['name']}, by what is public of it; null until then")
    if not proposal.open:
        typer.echo(f"`feducb recipe show {out}` explains it")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="The recipe, JSON or TOML.")],
    reward_range: str = option("0:1", "Public range of rewards, LOW:HIGH."),
    json_file: JsonFile = None,
) -> None:
    """Explain a recipe: its columns and terms in words, and the bounds that follow from it, with a reason."""
    require_writable("--json", json_file)
    recipe = Recipe.read(path)
    derived = derive_bounds(recipe, parse_range(reward_range))
    facts = {
        "fingerprint": recipe.fingerprint,
        "problem": derived.problem.as_dict(),
        "why": derived.why,
        "promised": fixed_part(recipe).fingerprint,
        "actions": list(recipe.offered),
        "added": list(added_to(recipe)),
        "retired": list(recipe.retired),
        "room": slots_left(recipe),
        "terms": {"*".join(term) or "1": recipe.width_of(term) for term in recipe.terms},
        "model": _model(recipe).name,
        "numbers": _numbers(recipe),
        "refuses": refuses(recipe),
        "redundant": redundant(recipe),
        "explained": dict(explain(recipe)),
    }
    screen_beside(json_file).print(facts_table(str(path), list(_rows(recipe, derived))))
    write_json(lambda: json.dumps(facts, indent=1, ensure_ascii=False) + "\n", json_file)


def parse_range(text: str, setting: str = "--reward-range") -> tuple[float, float]:
    """LOW:HIGH, as two numbers."""
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise ConfigurationError(setting, text, "LOW:HIGH, the lower one first, such as 0:1")
    return low, high


def _rows(recipe: Recipe, derived: Derived) -> Iterator[tuple[str, str]]:
    yield "fingerprint", recipe.fingerprint
    yield "actions", ", ".join(recipe.offered) or "said with every request"
    yield from _season(recipe)
    yield from explain(recipe)
    for name, symbol in _SYMBOLS.items():
        value = getattr(derived.problem, name)
        yield f"{symbol} = {value:g}", f"{name}: {derived.why[name]}"
    yield "release", _release(recipe)
    for term, other in redundant(recipe).items():
        yield (
            "note",
            f"the term {term} tells nothing that {other} does not: what tells them apart stays unknown, and "
            "widens intervals and the bonus that is proven (`exploration = 1`)",
        )
    if names := refuses(recipe):
        listed = ", ".join(names)
        yield "note", f"a visitor is refused whose value is unknown or missing in: {listed}; give them rules"
    if not recipe.public:
        yield "note", "ranges or levels were read off private data: write in what is known in public"
    if recipe.dim > 100:
        numbers = counted(_numbers(recipe), "number")
        yield (
            "note",
            f"noise grows with d, and a release has {numbers}: fewer terms, or `--lean`, learn sooner",
        )


def _season(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """What a season may change, and did."""
    if added := added_to(recipe):
        yield "added", f"{', '.join(added)}, in the entries that were in reserve"
    if recipe.retired:
        yield "retired", f"{', '.join(recipe.retired)}: no longer offered"
    if room := slots_left(recipe):
        yield "room", f"for {counted(room, 'more action')} within a season (`feducb recipe add`)"
    if added or recipe.retired:
        yield "promised", f"{fixed_part(recipe).fingerprint}, which stays for a season"


@app.command()
def add(
    path: Annotated[Path, typer.Argument(help="The recipe, JSON.")],
    action: Annotated[str, typer.Argument(help="Its name; or JSON with its id and columns.")],
) -> None:
    """Name one more action, in the next entry that the recipe has in reserve, within a season or before.

    Agents offer it once they are restarted; all agents of a federation take the same file.
    """
    recipe = with_added(_editable(path), _described(action))
    _rewrite(path, recipe)
    room = counted(slots_left(recipe), "more action")
    typer.echo(f"{added_to(recipe)[-1]} is in {path}; room for {room}. Restart the agents that use it")


def _described(action: str) -> str | dict[str, Any]:
    """A name, or what JSON says of it."""
    if not action.lstrip().startswith("{"):
        return action
    try:
        plain: dict[str, Any] = json.loads(action)
    except (ValueError, RecursionError) as error:
        expected = f"""a name, or JSON such as {{"id": "voucher", "price": 5}} ({error})"""
        raise ConfigurationError("action", action, expected) from None
    return plain


@app.command()
def retire(
    path: Annotated[Path, typer.Argument(help="The recipe, JSON.")],
    action: Annotated[str, typer.Argument(help="Its name.")],
    back: bool = option(False, "Offer it again.", "--back"),
) -> None:
    """Stop offering an action, within a season or before; rewards that are still to come count.

    It must not be chosen by what raw rewards look like: only by what is public, or released (`/v1/model`).
    """
    recipe = _editable(path)
    if back and action not in recipe.retired:
        raise ConfigurationError("action", action, f"one that is retired: {', '.join(recipe.retired) or '-'}")
    retired = [one for one in recipe.retired if one != action] if back else [*recipe.retired, action]
    _rewrite(path, replace(recipe, retired=tuple(retired)))
    typer.echo(
        f"{action} is {'offered again' if back else 'retired'} in {path}. Restart the agents that use it"
    )


def _editable(path: Path) -> Recipe:
    if path.suffix == ".toml":
        expected = "a JSON file; in TOML write `added` of the column of names, and `retired`, by hand"
        raise ConfigurationError("recipe", str(path), expected)
    return Recipe.read(path)


def _rewrite(path: Path, recipe: Recipe) -> None:
    write_atomically(path, recipe.to_json().encode())


def _model(recipe: Recipe) -> Model:
    return model_of(recipe.shared if recipe.personal else recipe)


def _numbers(recipe: Recipe) -> int:
    """How many numbers a release has: of what leaves an agent, without known zeros."""
    return _model(recipe).coordinates((recipe.shared if recipe.personal else recipe).dim)


def _release(recipe: Recipe) -> str:
    """What leaves, in words."""
    model, dim = _model(recipe), (recipe.shared if recipe.personal else recipe).dim
    numbers, all_pairs = counted(_numbers(recipe), "number"), dim * (dim + 3) // 2
    if model == LINEAR:
        return numbers
    left_out = "entries that exclude each other by the recipe, as those of two actions, are never beside each"
    return f"{numbers}, not {all_pairs:,}: {left_out} other, and carry no noise ({model.name})"


def _listed(given: list[str] | None) -> list[str]:
    """What an option names, with commas between or repeated."""
    return [part.strip() for text in given or () for part in text.split(",") if part.strip()]


def _columns(log: Path) -> dict[str, list[str]]:
    """The first rows of a CSV file, by column."""
    with open_csv(log) as opened:
        reader = csv.DictReader(opened)
        names = list(reader.fieldnames or ())
        if not names:
            raise ConfigurationError("log", str(log), "a CSV file with a header")
        columns: dict[str, list[str]] = {name: [] for name in names}
        for row in islice(reader, _ROWS):
            for name in names:
                columns[name].append(row[name] or "")
    if not columns[names[0]]:
        raise ConfigurationError("log", str(log), "at least one row: kinds and actions are told by them")
    return columns


def _ask(proposal: Proposal, columns: dict[str, list[str]]) -> None:
    """Fill in what is open; an empty answer leaves it so."""
    for one in proposal.open:
        name = one["name"]
        if one["kind"] == "number":
            found = _asked(f"public range of {name}, LOW:HIGH", partial(_range, name))
            if found is not None:
                one["low"], one["high"] = found.low, found.high
            continue
        seen = ", ".join(sorted({as_text(text) for text in columns[name] if text}))
        typer.echo(f"the log has of {name}: {seen}")
        levels = _asked(f"public levels of {name}, separated by |", partial(_levels, name))
        if levels is not None:
            one["levels"] = list(levels.levels)


def _asked(question: str, read: Callable[[str], Answer]) -> Answer | None:
    """What is typed, asked for again while it cannot be; None for an empty answer."""
    while text := typer.prompt(question, default="").strip():
        try:
            return read(text)
        except ConfigurationError as error:
            typer.echo(str(error))
    return None


def _range(name: str, text: str) -> Number:
    return Number(name, *parse_range(text, f"range of {name}"))


def _levels(name: str, text: str) -> Category:
    return Category(name, tuple(part.strip() for part in text.split("|") if part.strip()))
