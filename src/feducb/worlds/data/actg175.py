"""ACTG 175: four treatments of HIV, randomised, 2,139 patients."""

from __future__ import annotations

from importlib.resources import as_file, files

from feducb.system import counted, optional
from feducb.worlds.data.data_set import DataSet, Trial, deal
from feducb.worlds.features import Category, Number, Recipe

__all__ = ["ACTG175"]

_ARMS = ("zidovudine", "zidovudine+didanosine", "zidovudine+zalcitabine", "didanosine")
_HOSPITALS = 10
_CHANGE = 200.0  # cells/mm³: beyond it a change counts as this much

RECIPE = Recipe(
    context=(
        Number("age", 0.0, 100.0),
        Number("cd40", 0.0, 1000.0),
        Number("z30", 0.0, 1.0),
        Number("symptom", 0.0, 1.0),
    ),
    action=(Category("arm", _ARMS),),
    terms=(("arm",), ("age",), ("cd40",), ("z30",), ("symptom",), ("arm", "cd40"), ("arm", "z30")),
)


def _load(agents: int | None) -> Trial:
    with optional("the data set actg175", "data"):
        import lifelines  # noqa: F401
        import pandas
    with as_file(files("lifelines").joinpath("datasets", "ACTG175.csv")) as path:
        raw = pandas.read_csv(path)
    hospitals = _HOSPITALS if agents is None else agents
    change = raw["cd420"] - raw["cd40"]
    clipped = float((change.abs() > _CHANGE).mean())
    frame = pandas.DataFrame(
        {
            "hospital": [f"hospital {one + 1}" for one in deal(raw["pidnum"].to_numpy(), hospitals)],
            "arm": [_ARMS[arm] for arm in raw["arms"]],
            "reward": (change.clip(-_CHANGE, _CHANGE) + _CHANGE) / (2 * _CHANGE),
            "propensity": 0.25,
            **{name: raw[name].astype(float) for name in (column.name for column in RECIPE.context)},
        }
    )
    return Trial(
        frame=frame,
        agent="hospital",
        recipe=RECIPE,
        notes=(
            f"{len(frame):,} patients dealt to {counted(hospitals, 'hospital')} by their number: the file "
            "names none, so hospitals are alike, and real ones would differ more",
            f"reward: change of the CD4 count from start to week 20, clipped to ±{_CHANGE:g} cells/mm³, "
            f"scaled to 0 to 1 ({100 * clipped:.1f} % were clipped); 0.5 is no change, 0.01 is 4 cells",
            "propensity ¼: the trial drew the four arms with equal chance",
            "ranges of age (0 to 100) and CD4 (0 to 1000) are chosen from their meaning, not from the data",
        ),
    )


ACTG175 = DataSet(
    name="actg175",
    title="ACTG 175: four treatments of HIV, randomised",
    kind="trial",
    package="lifelines",
    source="Hammer et al., New England Journal of Medicine 335 (1996)",
    question="Which of four treatments should a patient get, for the highest CD4 count after 20 weeks?",
    licence="of the package: MIT; the records are those of R's speff2trial (GPL 2), and of UCI (CC BY 4.0)",
    natural="ten hospitals that patients are dealt to: the file names none",
    unclaimed="Anything of survival, or of hospitals that differ: dealt ones are alike, which flatters "
    "federating",
    load=_load,
)
