"""The recipes of the papers' image models."""

import pytest

from omniinput_zoo import digits, english, image_training, images, toy


@pytest.mark.parametrize("recipe", images.RECIPES)
def test_every_recipe_says_what_to_fetch(recipe, tmp_path, capsys):
    assert images.main([recipe, "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path) in said and "fetch" in said


def test_a_model_that_is_there_is_not_replaced_unasked(tmp_path, capsys, monkeypatch):
    folders = []
    monkeypatch.setattr(images, "read_data", lambda recipe, folder: None)
    monkeypatch.setattr(
        image_training, "train_and_save", lambda task, folder, seed: folders.append(folder)
    )
    weights = tmp_path / "inputs/models/mlp-mnist/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_text("mine")
    monkeypatch.chdir(tmp_path)
    for main, words in (
        (images.main, ["mlp-mnist", "--data", "d"]),
        (toy.main, ["--output", str(weights.parent)]),
        (english.main, ["--output", str(weights.parent)]),
        (digits.main, ["--output", str(tmp_path / "inputs")]),
    ):
        if main is digits.main:
            weights.parent.rename(tmp_path / "inputs/digits-mlp")
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "holds a model; choose another folder" in capsys.readouterr().err
    assert digits.main(["--output", "inputs", "--replace", "mlp"]) == 0
    assert images.main(["mlp-mnist", "--data", "d"]) == 0  # nothing is there any more
    assert [folder.name for folder in folders] == ["digits-mlp", "mlp-mnist"]
