"""Small models of the transformers library (BERT, GPT-2), on token ids alone."""

from typing import Any

import torch
from case import Case, classes
from torch import Tensor, nn

TOKENS, LENGTH = 8192, 32


class OnIds(nn.Module):
    """A model that is called with ids, and with positions that have one row for each example.

    By itself it would look positions up once for the batch: one row for all examples.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape).contiguous()
        kinds = {}
        if self.body.config.model_type == "bert":
            kinds = {"token_type_ids": torch.zeros_like(ids)}
        return self.body(input_ids=ids, position_ids=places, **kinds).logits


def bert(dropout: float = 0.0) -> Any:
    """A classifier of 2 layers, width 128: BERT-tiny."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=TOKENS,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            num_labels=2,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    )


def gpt2(dropout: float = 0.0) -> Any:
    """A classifier of 2 layers, width 128."""
    from transformers import GPT2Config, GPT2ForSequenceClassification

    return GPT2ForSequenceClassification(
        GPT2Config(
            vocab_size=TOKENS,
            n_positions=64,
            n_embd=128,
            n_layer=2,
            n_head=2,
            num_labels=2,
            pad_token_id=0,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        )
    )


def ids(count: int) -> Tensor:
    return torch.randint(1, TOKENS, (count, LENGTH))


def bert_ids() -> Case:
    """BERT-tiny without dropout: 1.5 M parameters."""
    return Case(OnIds(bert()), ids(4000), classes(4000, 2), batch_size=32)


def gpt2_ids() -> Case:
    """GPT-2 of that size without dropout."""
    return Case(OnIds(gpt2()), ids(4000), classes(4000, 2), batch_size=32)


class LowRank(nn.Module):
    """A frozen layer with a trained product of two thin Linear layers beside it (LoRA)."""

    def __init__(self, frozen: nn.Module, before: int, after: int, rank: int = 8) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(before, rank, bias=False)
        self.up = nn.Linear(rank, after, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


def lora_by_hand() -> Case:
    """The attention of that GPT-2 adapted with rank 8, all but the adapters and the head frozen."""
    body = gpt2().requires_grad_(False)
    for block in body.transformer.h:
        block.attn.c_attn = LowRank(block.attn.c_attn, 128, 384)
    body.score.requires_grad_(True)
    return Case(OnIds(body), ids(4000), classes(4000, 2), batch_size=32)
