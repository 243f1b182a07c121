"""What is learnt, and how sure one is. One file per model, and one entry here.

All else are pure functions, arrays in, arrays out, with any leading axes ``...``: one agent (none), or
runs × agents at once.
"""

from feducb.interfaces import MODEL_FAMILIES, MODELS, Model, require_model
from feducb.models.blocks import Blocks
from feducb.models.known_zeros import KnownZeros
from feducb.models.linear import Linear
from feducb.models.products import Products
from feducb.models.public_contexts import PublicContexts, with_contexts

__all__ = [
    "LINEAR",
    "MODELS",
    "Blocks",
    "KnownZeros",
    "Linear",
    "Model",
    "Products",
    "PublicContexts",
    "require_model",
    "with_contexts",
]

LINEAR = Linear()

MODELS.update({model.name: model for model in (LINEAR,)})
MODEL_FAMILIES.update({"blocks": Blocks.parse, "public": PublicContexts.parse, "zeros": Products.parse})
