"""Sample a model's whole input space and compute its precision-recall curve (OmniInput)."""

__version__ = "0.1.0"
