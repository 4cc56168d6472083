"""Small models of the transformers library: as they are, on ids alone, and adapted (LoRA)."""

from typing import Any

import torch
from case import Case, classes, logits_loss
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


def masked(count: int) -> dict[str, Tensor]:
    """Ids and a mask of texts of 8 to 32 tokens."""
    lengths = torch.randint(8, LENGTH + 1, (count, 1))
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": ids(count) * mask, "attention_mask": mask}


def bert_native() -> Case:
    """BERT-tiny as it is, with dropout 0.1, called with a dictionary of ids and masks."""
    return Case(bert(0.1), masked(4000), classes(4000, 2), logits_loss, batch_size=32)


def gpt2_native() -> Case:
    """GPT-2 of that size as it is, with dropout 0.1."""
    return Case(gpt2(0.1), masked(4000), classes(4000, 2), logits_loss, batch_size=32)


def language_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Of the next token, the mean over the tokens that are there."""
    losses = nn.functional.cross_entropy(
        outputs.logits[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none", ignore_index=-100
    )
    present = targets[:, 1:] != -100
    return losses.sum(dim=1) / present.sum(dim=1).clamp(min=1)


def gpt2_language_model() -> Case:
    """GPT-2 with its tied head, which predicts the next token."""
    from transformers import GPT2LMHeadModel

    inputs = masked(2000)
    targets = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    model = GPT2LMHeadModel(gpt2().config)
    return Case(model, inputs, targets, language_loss, batch_size=16)


def lora_peft() -> Case:
    """GPT-2 adapted with rank 8 by peft, called with a dictionary."""
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(TaskType.SEQ_CLS, r=8, target_modules=["c_attn"], fan_in_fan_out=True)
    return Case(
        get_peft_model(gpt2(), config), masked(4000), classes(4000, 2), logits_loss, batch_size=32
    )


def vit_huggingface() -> Case:
    """transformers' vision transformer with its class token and table of positions."""
    from case import images
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=192,
        image_size=32,
        patch_size=4,
        num_labels=10,
    )
    inputs = {"pixel_values": images(2000)}
    model = ViTForImageClassification(config)
    return Case(model, inputs, classes(2000, 10), logits_loss, batch_size=32)
