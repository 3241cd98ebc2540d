"""How the papers' own small models are trained, one module per model."""
