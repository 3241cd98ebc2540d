"""Judges of texts: a causal language model with a prompt, and a text classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.judges.networks import about_files, class_probability, loading
from omniinput_hpc.annotation.tasks import Task
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.foreign_code import ForeignError, as_close, foreign_code
from omniinput_hpc.models.language.hf_checks import MULTI_LABEL
from omniinput_hpc.models.language.loading import load
from omniinput_hpc.models.language.trial import longest_within

TEXT_FIELD = "{text}"
PROBE = "a"
"""A text that shows whether a tokenizer puts a blank before texts."""
MIN_ANSWER_MASS = 0.1
"""If the answers have less probability than this, the prompt does not lead to them."""
TRIAL_LENGTHS = (1, 3, 6)
"""Lengths of texts in the trial of whether batches change a classifier's scores."""


class LanguageModelJudge(Judge):
    """Judge that reads a prompt with each text and compares the answers' next-token probabilities.

    With answers 0 ... n - 1, from worst to best, and p_j the probability of answer j's token
    divided by that of all answers, the score is the sum of p_j j / (n - 1): for " no" and " yes",
    the probability of yes. Nothing is generated. Special tokens that a text spells out are read as
    plain text, so that a text cannot end the prompt's text field. A blank before ``{text}`` is part
    of the text's first token, as in any sentence.

    Parameters
    ----------
    path : a folder with safetensors, or a hub's model in the local cache
    template : the prompt; ``{text}`` stands for the text
    answers : from worst to best; only the first token of each after the prompt counts
    dtype, device : of the weights

    Raises
    ------
    UserError
        No model or tokenizer, a template that does not hold ``{text}`` once with text around it,
        fewer than two answers, or answers with the same first token.
    """

    def __init__(
        self, path: str, template: str, answers: Sequence[str], dtype: str, device: str
    ) -> None:
        head, found, tail = template.partition(TEXT_FIELD)
        if not found or TEXT_FIELD in tail or not (head + tail).strip():
            raise UserError(f"--template must contain {TEXT_FIELD} once, with text around it")
        with loading():
            folder = hf_folder.resolve(path)
            words = tokenizer.read(folder)
            self._tokenizer = tokenizer.require(words, folder, "--judge causal-lm")
            first = tokenizer.frame(self._tokenizer)[0]
            bare = head.removesuffix(" ")
            self._blank = "" if bare == head else blank_before_texts(self._tokenizer, bare)
            self._head, n_twice = tokenizer.joined(first, self._tokenizer.encode(bare))
            self._twice = [self._tokenizer.name_of(i) for i in first[len(first) - n_twice :]]
            self._tail = self._tokenizer.encode(tail)
            self._answers = [self._answer(tail, answer) for answer in answers]
            if len(set(self._answers)) < max(2, len(answers)):
                problem = "give two or more with different first tokens"
                raise UserError(f"--answers {answers}: {problem}")
            n_vocab = hf_folder.n_vocab_of(folder)
            fixed = [*self._head, *self._tail, *self._answers]
            hf_folder.check_tokens(fixed, n_vocab, words, "--template or --answers")
            self._lm = load(AutoModelForCausalLM, folder, dtype, device)
        self._device, self._n_vocab = device, n_vocab
        # scores by earlier versions, to which the blank was a token of its own, are not continued
        moved = [] if bare == head else ["blank"]
        prompt = "|".join([*moved, template, *answers])
        digest = hashlib.sha256(prompt.encode()).hexdigest()[:12]
        self.about = f"causal-lm {about_files(path, folder)} {dtype} prompt {digest}"
        self._mass: list[float] = []

    @torch.no_grad()
    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the expected answer for each text, from 0 to 1."""
        texts = [plain_tokens(self._tokenizer, t, self._n_vocab, self._blank) for t in tasks]
        rows = [self._head + text + self._tail for text in texts]
        check_length(rows, tasks, self._lm)
        tokens, mask = padded(rows, self._device)
        logits = self._lm(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        last = mask.sum(dim=1) - 1
        log_p = logits[torch.arange(len(rows)), last].double().log_softmax(-1)  # [n, V]
        answers = log_p[:, self._answers]  # [n, answers]
        self._mass += answers.logsumexp(-1).exp().tolist()
        answer_score = torch.linspace(0.0, 1.0, len(self._answers), dtype=torch.float64)
        score = (answers.softmax(-1).cpu() * answer_score).sum(-1).clamp(0.0, 1.0)
        return list(score.tolist())

    def notes(self) -> list[str]:
        """Return the answers' mean probability, and the tokens that the prompt held twice."""
        notes = []
        if self._twice:
            notes.append(
                f"the template begins with {', '.join(self._twice)}, which the tokenizer also "
                "puts before every text: the model reads it only once"
            )
        if not self._mass:
            return notes
        mass = sum(self._mass) / len(self._mass)
        note = f"the answers had {100 * mass:.1f} % of the model's probability on average"
        little = "; that is little: does the prompt fit the model?"
        return [*notes, note + (little if mass < MIN_ANSWER_MASS else "")]

    def _answer(self, tail: str, answer: str) -> int:
        """Return the first token of an answer after the prompt."""
        ids = self._tokenizer.encode(tail + answer)
        if ids[: len(self._tail)] != self._tail or len(ids) == len(self._tail):
            raise UserError(
                f'--answers: "{answer}" and the end of the template form one token; begin the '
                "answer with a blank, and end the template without one"
            )
        return ids[len(self._tail)]


class TextClassifierJudge(Judge):
    """Judge whose score is the probability of a class (AutoModelForSequenceClassification).

    Raises a UserError if the model, its tokenizer or the class is missing.
    """

    def __init__(self, path: str, label: int, dtype: str, device: str) -> None:
        with loading():
            folder = hf_folder.resolve(path)
            words = tokenizer.read(folder)
            self._tokenizer = tokenizer.require(words, folder, "--judge sequence-classifier")
            self._n_vocab = hf_folder.n_vocab_of(folder)
            self._around = hf_folder.frame(folder, self._n_vocab, self._tokenizer)
            self._lm = load(AutoModelForSequenceClassification, folder, dtype, device)
        self._label, self._device = label, device
        self._independent = self._lm.config.problem_type == MULTI_LABEL
        # a decoder's head looks for this token, not for the mask, to find the last token
        self._pad = self._lm.config.get_text_config().pad_token_id
        self._one_by_one = not self._accepts_batches()
        which = f"{'independent ' if self._independent else ''}label {label}"
        # scores by earlier versions, which always padded with token 0, are not continued
        if self._pad is not None and (self._pad != 0 or self._one_by_one):
            which += ", own padding"
        self.about = f"sequence-classifier {about_files(path, folder)} {dtype} {which}"
        class_probability(torch.zeros((1, int(self._lm.config.num_labels))), label, path)

    @torch.no_grad()
    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the class's probability of each text."""
        texts = [plain_tokens(self._tokenizer, task, self._n_vocab) for task in tasks]
        before, after = self._around
        rows = [[*before, *text, *after] for text in texts]
        check_length(rows, tasks, self._lm, self._around)
        batches = [[row] for row in rows] if self._one_by_one else [rows]
        logits = torch.cat([self._logits(batch) for batch in batches])
        return list(class_probability(logits, self._label, "", self._independent).tolist())

    def _logits(self, rows: list[list[int]]) -> torch.Tensor:
        """Return the outputs of a batch of texts, [n, classes]."""
        tokens, mask = padded(rows, self._device, self._pad or 0)
        logits: torch.Tensor = self._lm(input_ids=tokens, attention_mask=mask).logits
        return logits

    @torch.no_grad()
    def _accepts_batches(self) -> bool:
        """Return whether texts of different lengths get the same outputs together as one by one."""
        if self._pad is None or not 0 <= self._pad < self._n_vocab:
            return False
        before, after = self._around
        ids = [(self._n_vocab // 2 + i) % self._n_vocab for i in range(max(TRIAL_LENGTHS))]
        rows = [[*before, *ids[:n], *after] for n in TRIAL_LENGTHS]
        try:
            with foreign_code():
                alone = torch.cat([self._logits([row]) for row in rows])
                return as_close(self._logits(rows), alone, self._lm.dtype)
        except ForeignError:
            return False


def blank_before_texts(vocabulary: tokenizer.Vocabulary, head: str) -> str:
    """Return the blank between a head and texts; "" if the tokenizer puts it before every text."""
    encode = vocabulary.encode
    return "" if encode(f"{head} {PROBE}") == [*encode(head), *encode(PROBE)] else " "


def plain_tokens(
    vocabulary: tokenizer.Vocabulary, task: Task, n_vocab: int, before: str = ""
) -> list[int]:
    """Return the tokens of `before` and a task's text; names of special tokens are plain text.

    A `UserError` names a token that is outside the model's vocabulary.
    """
    ids = vocabulary.encode(before + (task.prefix or "") + (task.text or ""), plain=True)
    hf_folder.check_tokens(ids, n_vocab, vocabulary, f"task {task.id}")
    return ids


def check_length(
    rows: list[list[int]], tasks: Sequence[Task], lm: Any, around: hf_folder.Frame = ([], [])
) -> None:
    """Raise a UserError if a text is longer than the model can read."""
    longest = longest_within(lm, max(map(len, rows)), around)
    for row, task in zip(rows, tasks, strict=True):
        if len(row) > longest:
            raise UserError(
                f"task {task.id}: {len(row)} tokens with the prompt, but the model reads "
                f"{longest}; choose another judge or a shorter template"
            )


def padded(rows: list[list[int]], device: str, pad: int = 0) -> tuple[Any, Any]:
    """Return tokens and mask, int64 [n, longest], padded at the end with token `pad`."""
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return tokens, (torch.arange(longest, device=device) < lengths).long()
