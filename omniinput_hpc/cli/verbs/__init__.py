"""The offline verbs, one module each; the scripts in analysis/ call them."""
