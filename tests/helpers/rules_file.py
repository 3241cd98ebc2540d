"""A file my_rules.py of the user's own: a model of 8 sites of 4 values, and a rule; no MPI."""

TEXT = """
class Model:
    n_sites, n_values = 8, 4
    def output(self, x):
        return x.sum(dim=1).float()
def make(device):
    return Model()
def first_is_zero(x):
    return (x[:, 0] == 0) * 1.0
"""
MODEL = 'kind = "python"\nfactory = "my_rules:make"'
"""What [model] says of it."""
RULE = "my_rules:first_is_zero"


def write_rules(folder):
    """Write my_rules.py."""
    (folder / "my_rules.py").write_text(TEXT)
