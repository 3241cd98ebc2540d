"""The words of the English model's text."""

from omniinput_zoo import english


def test_words_that_occur_twice_are_written_once(tmp_path, monkeypatch):
    texts = ["The cat isn't here, 2 cats are.", "Isn't the Cat at home?"]
    monkeypatch.setattr(english, "paragraphs", lambda: texts)
    file = tmp_path / "new/words.txt"
    assert english.main(["--words", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == "cat\nisn't\nthe\n"
