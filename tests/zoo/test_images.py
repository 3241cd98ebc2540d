"""The recipes of the papers' image models."""

import pytest

from omniinput_zoo import images


@pytest.mark.parametrize("recipe", images.RECIPES)
def test_every_recipe_says_what_to_fetch(recipe, tmp_path, capsys):
    assert images.main([recipe, "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path) in said and "fetch" in said
