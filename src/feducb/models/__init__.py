"""What is learnt, and how sure one is. One file per model, and one entry here.

All else are pure functions, arrays in, arrays out, with any leading axes ``...``: one agent (none), or
runs × agents at once.
"""

from feducb.interfaces import MODELS, Model, require_model
from feducb.models.linear import Linear

__all__ = ["LINEAR", "MODELS", "Linear", "Model", "require_model"]

LINEAR = Linear()

MODELS.update({model.name: model for model in (LINEAR,)})
