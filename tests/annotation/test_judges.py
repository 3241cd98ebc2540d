"""Judges score as their models say, in any batch, and go on where they stopped; FID is the formula.

The oracles read one text at a time, without padding, straight from transformers.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from _common import run_script
from judge import main
from language_folders import POSITIONS, V, save_classifier, save_tokenizer
from page_server import ROOT
from safetensors.torch import save_file
from scipy.linalg import sqrtm
from task_files import KEY_HEADER, make_tasks, word
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from omniinput_hpc import plugins
from omniinput_hpc.annotation import png, tasks
from omniinput_hpc.annotation.judges import fid, language, networks, rule, run_judge
from omniinput_hpc.annotation.scores import ScoreFile, find_scores, read_scores, scores_path
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.data_sets import read_digits
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_zoo.digits import looks_like_one

ENGLISH, MLP = ROOT / "inputs/models/english", ROOT / "inputs/models/digits-mlp"
TEMPLATE = "One day: {text} Is that right? She said"
TEXTS = [
    "the cat sat on the mat",
    "a",
    "once upon a time there was a little girl " * 3,
    "",
    "no yes",
]


@pytest.fixture(scope="module")
def reader():
    return language.LanguageModelJudge(str(ENGLISH), TEMPLATE, (" no", " yes"), "float32", "cpu")


@pytest.fixture
def written(tmp_path):
    return make_tasks(tmp_path, texts=[t + str(i) for i, t in enumerate(TEXTS * 3)])


@cache
def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def expected(text):
    """p(yes) / (p(yes) + p(no)) as the next token of the prompt, one text at a time."""
    model, words = model_of(ENGLISH), tokenizer.read(ENGLISH)
    head, tail = TEMPLATE.split("{text}")
    ids = words.encode(head + text) + words.encode(tail)
    yes, no = (words.encode(tail + w)[len(words.encode(tail))] for w in (" yes", " no"))
    with torch.no_grad():
        p = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    return float(p[yes] / (p[yes] + p[no]))


def test_a_language_models_score_is_the_probability_of_yes(reader, written):
    given = reader.score(written.tasks)
    truth = [expected(task.text) for task in written.tasks]
    np.testing.assert_allclose(given, truth, atol=2e-6)
    assert np.ptp(truth) > 0.01
    assert "% of the model's probability" in reader.notes()[0]


def test_a_blank_before_the_text_is_part_of_its_first_token(reader, tmp_path):
    task, words = tasks.Task("a", text="the cat"), tokenizer.read(ENGLISH)
    ids = reader._head + language.plain_tokens(words, task, 2000, reader._blank)
    assert ids == words.encode("One day: the cat")
    assert ids != words.encode("One day: ") + words.encode("the cat")  # as it was
    made = Tokenizer(models.BPE({w: i for i, w in enumerate(["▁", "a", "b", "▁a"])}, [("▁", "a")]))
    made.pre_tokenizer = pre_tokenizers.Metaspace()  # puts a blank before every text
    made.save(str(tmp_path / "tokenizer.json"))
    assert language.blank_before_texts(tokenizer.read(tmp_path), "b") == ""


def test_reading_the_answer_behind_the_padding_would_be_noticed(reader, written, monkeypatch):
    def pads_counted(rows, device):
        tokens, _ = real(rows, device)
        return tokens, torch.ones_like(tokens)

    real = language.padded
    monkeypatch.setattr(language, "padded", pads_counted)
    wrong = np.array(reader.score(written.tasks))
    truth = np.array([expected(task.text) for task in written.tasks[:5]])
    assert np.abs(wrong[:5] - truth).max() > 1e-3


def test_more_answers_make_a_scale(written):
    words = (" the", " right", " said")
    judge = language.LanguageModelJudge(str(ENGLISH), TEMPLATE, words, "float32", "cpu")
    two = language.LanguageModelJudge(str(ENGLISH), TEMPLATE, words[::2], "float32", "cpu")
    three, ends = np.array(judge.score(written.tasks)), np.array(two.score(written.tasks))
    assert ((three - 0.5) * (ends - 0.5) >= 0).all()  # the middle answer pulls to the middle
    assert (np.abs(three - 0.5) < np.abs(ends - 0.5)).all()


def test_a_text_cannot_leave_its_place_in_the_prompt():
    words = tokenizer.read(ENGLISH)
    special = next(w for w, i in words.ids.items() if i in words.special)
    ids = language.plain_tokens(words, tasks.Task("a", text=f"x{special}y", prefix="p "), 2000)
    assert not set(ids) & words.special and words.decode(ids) == f"p x{special}y"
    assert set(words.encode(f"x{special}y")) & words.special  # without the care it would


def test_a_judge_that_was_stopped_goes_on_to_the_same_scores(reader, written, tmp_path):
    whole = run_judge(written, reader, "whole", 4)
    assert (whole.new, whole.before, whole.left_out) == (15, 0, 0)

    def stop(done, of):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_judge(written, reader, "cut", 4, stop)
    path = scores_path(written.path, "cut", judge=True)
    path.write_bytes(path.read_bytes()[:-20])  # as a kill in the middle of a write leaves it
    again = run_judge(written, reader, "cut", 4)
    assert (again.new, again.before) == (8, 7)
    back = read_scores(path, written)
    assert back.by_id() == read_scores(whole.path).by_id()  # to the last bit
    assert back.judge == reader.about and "causal-lm" in reader.about
    with ScoreFile(scores_path(written.path, "ana"), written) as file:
        file.append(word("id0000", 0.5))
    with pytest.raises(UserError, match="holds scores of a person; choose another --name"):
        run_judge(written, reader, "ana", 4)
    other = language.LanguageModelJudge(str(ENGLISH), "{text}?", (" no", " yes"), "float32", "cpu")
    with pytest.raises(UserError, match="holds scores of the judge causal-lm"):
        run_judge(written, other, "cut", 4)


@pytest.mark.parametrize("n_classes", [1, 2, 4])
def test_a_text_classifiers_score_is_its_classs_probability(tmp_path, n_classes):
    folder = save_classifier(tmp_path, n_classes)
    made = make_tasks(tmp_path, texts=["a b c", "t", "", "q r s d a b", "x y [SEP] a"])
    judge = language.TextClassifierJudge(str(folder), 1, "float32", "cpu")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    (first,), (last,) = hf_folder.frame(folder, 29, tokenizer.read(folder))
    given = judge.score(made.tasks)
    for task, score in zip(made.tasks, given, strict=True):
        ids = [first, *language.plain_tokens(tokenizer.read(folder), task, 29), last]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        truth = logits[0].sigmoid() if n_classes == 1 else logits.softmax(-1)[1]
        assert abs(score - float(truth)) < 2e-6
    assert np.ptp(given) > 0.003
    with pytest.raises(UserError, match=f"has {max(2, n_classes)} classes"):
        language.TextClassifierJudge(str(folder), 4, "float32", "cpu")
    long = [tasks.Task("long", text="a " * 20)]
    with pytest.raises(UserError, match=r"task long: 22 tokens .* reads 16"):
        judge.score(long)


@pytest.mark.parametrize("pad", [None, 1, V])
def test_a_decoders_score_is_that_of_its_last_token_in_any_batch(tmp_path, pad):
    """Its head looks for the padding token of config.json, which may be none or outside."""
    torch.manual_seed(4)
    size = {"n_positions": POSITIONS, "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": V}
    model = GPT2ForSequenceClassification(GPT2Config(**size, num_labels=2, pad_token_id=pad))
    for parameter in model.parameters():
        parameter.data *= 3
    model.eval().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    made = make_tasks(tmp_path, texts=["abc", "t", "qrsdab", "xa", "hhhh"])
    judge = language.TextClassifierJudge(str(tmp_path), 1, "float32", "cpu")
    words = tokenizer.read(tmp_path)
    with torch.no_grad():
        alone = [model(torch.tensor([words.encode(t.text)])).logits[0] for t in made.tasks]
    truth = torch.stack(alone).softmax(-1)[:, 1].tolist()
    assert judge.score(made.tasks) == pytest.approx(truth, abs=2e-6)
    assert judge._one_by_one == (pad != 1) and np.ptp(truth) > 0.003
    assert judge.about.endswith("own padding") == (pad is not None)  # those had wrong scores


def test_independent_labels_have_probabilities_of_their_own(tmp_path):
    folder = save_classifier(tmp_path, 4)
    one = language.TextClassifierJudge(str(folder), 1, "float32", "cpu")
    file = folder / "config.json"
    settings = json.loads(file.read_text()) | {"problem_type": "multi_label_classification"}
    file.write_text(json.dumps(settings))
    judge = language.TextClassifierJudge(str(folder), 1, "float32", "cpu")
    ids = [2, *tokenizer.read(folder).encode("a b c"), 3]
    with torch.no_grad():
        logits = judge._lm(torch.tensor([ids])).logits[0]
    (given,) = judge.score([tasks.Task("a", text="a b c")])
    assert given == pytest.approx(float(logits[1].sigmoid()), abs=2e-6)
    assert abs(given - float(logits.softmax(-1)[1])) > 0.05
    assert judge.about != one.about and "independent label 1" in judge.about


def pictures(folder, images, per_bin=None, gold=()):
    """Write picture tasks of digits' values [n, 64], two bins, and their key."""
    path = folder / "digits.tasks.jsonl"
    grey = np.rint(images / 16 * 255).astype(np.uint8).reshape(-1, 8, 8)
    made = [tasks.Task(f"id{i:04d}", png=png.data_uri(image)) for i, image in enumerate(grey)]
    items = [
        tasks.KeyItem(t.id, 0, float(i >= (per_bin or 1e9)), 0.5, 0.0, 1, x.tolist(), 0)
        for i, (t, x) in enumerate(zip(made, images, strict=True))
    ]
    for i, score in enumerate(gold):
        made.append(tasks.Task(f"gold{i}", png=made[i].png))
        items.append(tasks.KeyItem(f"gold{i}", None, None, None, None, 0, [], None, gold=score))
    tasks_id = tasks.write_tasks(path, "image", made)
    tasks.write_key(tasks.key_path(path), {"tasks_id": tasks_id, **KEY_HEADER}, items)
    return tasks.read_tasks(path)


def noise(n, seed=0):
    return np.random.default_rng(seed).integers(17, size=(n, 64))


def test_a_picture_classifier_sees_the_inputs_own_levels(tmp_path):
    images = np.concatenate([read_digits(0, 1).x[:40], noise(10)])
    made = pictures(tmp_path, images)
    judge = networks.PictureClassifierJudge(str(MLP), 1, "cpu")
    z = networks.PictureNetwork(str(MLP), "cpu")._network(torch.from_numpy(images.astype(int)))
    given = judge.score(made.tasks)
    np.testing.assert_allclose(given, 1 / (1 + np.exp(-z[:, 0].double().numpy())), rtol=1e-9)
    assert np.corrcoef(given[:40], read_digits(0, 1).y[:40])[0, 1] > 0.9
    other = networks.PictureClassifierJudge(str(MLP), 0, "cpu").score(made.tasks)
    np.testing.assert_allclose(np.add(given, other), 1.0, rtol=1e-12)
    with pytest.raises(UserError, match=r"takes pictures of \(8, 8\), but these are \(5, 5\)"):
        judge.score([tasks.Task("a", png=png.data_uri(np.zeros((5, 5), np.uint8)))])


def test_a_custom_network_takes_pictures_from_0_to_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mean_network.py").write_text(
        "import torch\n"
        "class Mean(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.slope = torch.nn.Parameter(torch.zeros(1))\n"
        "    def forward(self, image):\n"
        "        return self.slope * image.mean(dim=(1, 2, 3))[:, None] - 10\n"
    )
    save_file({"slope": torch.full((1,), 20.0)}, tmp_path / "mean.safetensors")
    made = pictures(tmp_path, noise(6))
    judge = networks.PictureClassifierJudge("mean.safetensors", 1, "cpu", "mean_network:Mean")
    grey = np.stack([png.pixels(t.png) for t in made.tasks]) / 255
    expected = 1 / (1 + np.exp(10 - 20 * grey.mean(axis=(1, 2))))
    np.testing.assert_allclose(judge.score(made.tasks), expected, rtol=1e-5)
    code = tmp_path / "mean_network.py"
    assert plugins.source_of("mean_network:Mean") in judge.about
    code.write_text(code.read_text().replace("- 10", "- 11"))
    judge_2 = networks.PictureClassifierJudge("mean.safetensors", 1, "cpu", "mean_network:Mean")
    assert judge_2.about != judge.about  # another judge, whose scores are not joined with the first
    with pytest.raises(UserError, match=r"\.pt2\) are not read: give the network by --factory"):
        networks.PictureClassifierJudge("mean.pt2", 1, "cpu")


def test_a_rule_of_values_and_of_what_is_shown(tmp_path, monkeypatch):
    made = pictures(tmp_path, read_digits(0, 1).x[:30], gold=[1.0, 0.0])
    key = tasks.read_key(tasks.key_path(made.path))
    judge = rule.RuleJudge("omniinput_hpc.zoo.digits:looks_like_one", "values", key)
    done = run_judge(made, judge, "rule", 8)
    assert (done.new, done.left_out) == (30, 2)
    truth = looks_like_one(read_digits(0, 1).x[:30])
    assert list(read_scores(done.path).by_id().values()) == truth.tolist()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_judges.py").write_text(
        "import numpy as np\n"
        "def bright(images): return [i.mean() / 255 for i in images]\n"
        "def length(texts): return [min(1, len(t) / 20) for t in texts]\n"
        "def fails(x): raise KeyError('lost')\n"
        "def large(x): return 2 * np.ones(len(x))\n"
    )
    given = rule.RuleJudge("my_judges:bright", "shown", None).score(made.tasks)
    assert given[-2:] == given[:2] and all(0 < g < 1 for g in given)  # gold, too
    (tmp_path / "t").mkdir()
    texts = make_tasks(tmp_path / "t", texts=["ab", ""])
    assert rule.RuleJudge("my_judges:length", "shown", None).score(texts.tasks) == [0.1, 0.0]
    key = tasks.read_key(tasks.key_path(texts.path))
    judge = rule.RuleJudge("my_judges:length", "values", key)  # it asks for texts by its argument
    begun = [replace(task, prefix="not read") for task in texts.tasks]
    assert judge.score(begun) == [0.1, 0.0] and "my_judges:length of texts," in judge.about
    with pytest.raises(UserError, match="my_judges:length reads texts, but the tasks are pictures"):
        judge.score(made.tasks)


def test_fid_is_the_formula(tmp_path):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(300, 4)), rng.normal(0.5, 2.0, size=(50, 4)) @ rng.normal(size=(4, 4))
    ca, cb = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    apart = ((a.mean(axis=0) - b.mean(axis=0)) ** 2).sum()
    truth = apart + np.trace(ca + cb - 2 * sqrtm(ca @ cb).real)
    got = fid.frechet(torch.from_numpy(a), torch.from_numpy(b))
    assert abs(got - truth) < 1e-6 * truth
    assert abs(got - (apart + np.trace(ca + cb))) > 1e-2 * truth  # without the cross term
    assert np.isnan(fid.frechet(torch.from_numpy(a), torch.from_numpy(b[:1])))


def test_fid_per_bin_tells_ones_from_noise_and_says_when_pictures_are_few(tmp_path):
    ones = read_digits(1).x
    network = networks.PictureNetwork(str(MLP), "cpu")
    reference = np.rint(ones / 16 * 255).astype(np.uint8).reshape(-1, 8, 8)
    made = pictures(tmp_path, np.concatenate([ones[:60], noise(140)]), per_bin=60, gold=[1.0])
    key = tasks.read_key(tasks.key_path(made.path))
    columns, notes = fid.fid_per_bin(made, key, network, reference)
    assert columns["draws"].tolist() == [60, 140]
    assert columns["fid"][1] > 5 * columns["fid"][0]
    assert columns["fid_of_reference"][1] < columns["fid_of_reference"][0]  # more pictures: lower
    own = network.features(reference[:60]).detach()
    known = network.features(reference).detach()
    assert abs(columns["fid"][0] - fid.frechet(known, own)) < 1e-9 * columns["fid"][0]
    often = replace(key, items=[replace(item, draws=40 * item.draws) for item in key.items])
    again, again_notes = fid.fid_per_bin(made, often, network, reference)
    for name in ("pictures", "fid_of_reference"):  # the same pictures, each 40 times as often
        np.testing.assert_array_equal(again[name], columns[name])
    assert again_notes == notes
    assert "128 features" in notes[0] and "1 of 2 bins have no more pictures than" in notes[1]
    made = pictures(tmp_path, np.concatenate([ones[:3], noise(1)]), per_bin=3)
    columns, notes = fid.fid_per_bin(
        made, tasks.read_key(tasks.key_path(made.path)), network, reference
    )
    assert np.isnan(columns["fid"][1]) and any("its FID is nan" in note for note in notes)


def call(capsys, *words):
    code = run_script(main, list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_judges_and_goes_on(tmp_path, capsys):
    made = pictures(tmp_path, read_digits(0, 1).x[:40], per_bin=20, gold=[1.0])
    name = "omniinput_hpc.zoo.digits:looks_like_one"
    code, out, err = call(capsys, made.path, "--judge", name)
    assert (code, err) == (0, "")
    assert "40 tasks scored, 0 were already; 1 without values (gold) left out" in out
    assert out.splitlines()[-1] == str(scores_path(made.path, "looks_like_one", judge=True))
    assert "0 tasks scored, 40 were already" in call(capsys, made.path, "--judge", name)[1]
    np.save(tmp_path / "ones.npy", np.stack([png.pixels(t.png) for t in made.tasks[:20]]))
    ones = tmp_path / "ones.npy"
    code, out, err = call(capsys, made.path, "--judge", "fid", "--model", MLP, "--reference", ones)
    assert (code, err) == (0, "") and (tmp_path / "digits.fid.csv").exists()
    assert "fid_of_reference" in out


def test_a_pattern_for_people_finds_no_judge_and_an_old_file_is_continued(tmp_path, capsys):
    made = pictures(tmp_path, read_digits(0, 1).x[:8], per_bin=4)
    name = "omniinput_hpc.zoo.digits:looks_like_one"
    assert call(capsys, made.path, "--judge", name)[0] == 0
    (written,) = tmp_path.glob("*.judge-scores.*.jsonl")
    assert not list(tmp_path.glob("*.scores.*.jsonl")) and find_scores(made.path) == [written]
    old = written.rename(scores_path(made.path, "looks_like_one"))  # as it was named before
    assert "0 tasks scored, 8 were already" in call(capsys, made.path, "--judge", name)[1]
    assert find_scores(made.path) == [old]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--judge", "music"], "expected module:function or causal-lm"),
        (["--judge", "no_such_module:f"], "cannot import no_such_module"),
        (["--judge", "json:nothing"], "--judge json:nothing: json has no function nothing"),
        (["--judge", "json:dumps"], "is not a number|not numbers|failed"),
        (["--judge", "causal-lm"], "--judge causal-lm requires --model"),
        (["--judge", "causal-lm", "--model", ENGLISH], "requires --template"),
        (["--judge", "causal-lm", "--model", ENGLISH, "--template", "none"], "none: no such file"),
        (["--judge", "causal-lm", "--model", ENGLISH, "--template", "bare"], "contain {text} once"),
        (["--judge", "causal-lm", "--model", "/none", "--template", "good"], "/none: no such"),
        (["--judge", "causal-lm", "--model", MLP, "--template", "good"], "needs a tokenizer"),
        (["--judge", "causal-lm", "--model", ENGLISH, "--template", "good", "--answers", " yes"],
         "two or more with different first tokens"),
        (["--judge", "causal-lm", "--model", ENGLISH, "--template", "long"], "the model reads"),
        (["--judge", "sequence-classifier", "--model", ENGLISH, "--class", 0], "has no|do not"),
        (["--judge", "image-classifier", "--model", MLP, "--class", 0], "scores images"),
        (["--judge", "fid", "--model", MLP, "--reference", "x"], "not a folder of pictures"),
        (["--judge", "json:loads", "--name", "a/b"], "letters, digits"),
        (["--judge", "json:loads", "--batch", 0], "--batch must be"),
        (["--judge", "json:loads", "--name", "ana"], "holds scores of a person"),
    ],
)  # fmt: skip
def test_bad_input_is_one_plain_line(tmp_path, capsys, monkeypatch, words, message):
    made = make_tasks(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    for name, text in (("bare", "no place"), ("good", TEMPLATE), ("long", "{text}" + " a" * 3000)):
        (tmp_path / name).write_text(text)
    with ScoreFile(scores_path(made.path, "ana"), made) as file:
        file.append(word("id0000", 0.5))
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.jsonl") if p.stat().st_size}
    code, out, err = call(capsys, made.path, *words)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1, err
    assert any(part in err for part in message.split("|")), err
    assert before == {p.name: p.read_bytes() for p in tmp_path.glob("*.jsonl") if p.stat().st_size}
