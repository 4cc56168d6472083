"""Faults in the rules of layers beyond the study's: a norm too small, a sum of somebody else's."""

from fault import Fault, G, of_kind

RULES = f"{G}test_layer_rules.py {G}test_layer_refused.py"


def in_embedding(name: str, old: str, new: str) -> Fault:
    return Fault(name, "gradients/embedding.py", old, new, RULES)


def in_sequences(name: str, old: str, new: str) -> Fault:
    return Fault(name, "gradients/sequence_linear.py", old, new, RULES)


def in_normalisation(name: str, old: str, new: str) -> Fault:
    return Fault(name, "gradients/normalisation.py", old, new, RULES)


LAYER_RULES = [
    in_embedding(
        "a word that stands twice is measured as two",
        "ranks[:, 1:] = (in_order[:, 1:] != in_order[:, :-1]).cumsum(dim=1)",
        "ranks[:, 1:] = (in_order[:, 1:] == in_order[:, 1:]).cumsum(dim=1)",
    ),
    in_embedding(
        "padding counts",
        "        if layer.padding_idx is not None:",
        "        if False:",
    ),
    in_embedding(
        "an embedding keeps examples that are not finite",
        "        self.rows = self.rows.masked_fill(bad[:, None, None], 0.0)\n",
        "        pass\n",
    ),
    in_embedding(
        "an embedding's second sum is added to the first",
        "(places + number * self.table)",
        "(places + 0 * number * self.table)",
    ),
    *of_kind(
        "company",
        in_embedding(
            "words are booked in another run's table",
            "torch.arange(runs, device=rows.device).repeat_interleave(batch)",
            "torch.arange(runs, device=rows.device).repeat(batch)",
        ),
        Fault(
            "the fall-back takes the first run's parameters",
            "gradients/functional.py",
            "own = {name: values[run] for name, values in parameters.items()}",
            "own = {name: values[0] for name, values in parameters.items()}",
            RULES,
        ),
    ),
    in_sequences(
        "a sequence's norm leaves out what its rows have in common",
        ".sum(dim=(1, 2))",
        ".diagonal(dim1=1, dim2=2).sum(dim=1)",
    ),
    in_sequences(
        "the Gram form leaves the bias out",
        " + float(self.rows.has_bias)",
        "",
    ),
    in_sequences(
        "the kernels of sequences leave the bias out",
        'gradients["bias"] = errors.sum(dim=1, dtype=exact)',
        'gradients["bias"] = 0 * errors.sum(dim=1, dtype=exact)',
    ),
    Fault(
        "rows that cancel leave rounding, which nobody measured",
        "gradients/cancelling.py",
        ".sqrt() + (length + 1) * _unit(sum_type) * terms",
        ".sqrt()",
        RULES,
    ),
    in_sequences(
        "the Gram form is taken in float32",
        "inputs[part].double(), errors[part].double()",
        "inputs[part].float(), errors[part].float()",
    ),
    in_sequences(
        "rows of other examples are dropped",
        "self.rows.drop(bad.repeat_interleave(self.length))",
        "self.rows.drop(bad.repeat(self.length))",
    ),
    in_sequences(
        "rows get other examples' weights",
        "weights.repeat_interleave(self.length, dim=2)",
        "weights.repeat(1, 1, self.length)",
    ),
    in_normalisation(
        "normalisation leaves its bias out",
        'gradients["bias"] = output_gradients',
        'gradients["bias"] = 0 * output_gradients',
    ),
    in_normalisation(
        "layer norm's inputs are taken before they are normalised",
        "normalised = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)",
        "normalised = inputs",
    ),
    Fault(
        "kept kernels are summed with rounded weights",
        "gradients/kept.py",
        "weights @ gradient",
        "weights.to(gradient.dtype).to(weights.dtype) @ gradient",
        RULES,
    ),
    Fault(
        "an embedding whose gradients lean on the batch's words is let in",
        "gradients/forms.py",
        "            if getattr(layer, option):",
        "            if False:",
        RULES,
    ),
    Fault(
        "an example is pulled back without its own mask",
        "gradients/forms.py",
        'names = ("query", "key", "value", "key_padding_mask")',
        'names = ("query", "key", "value")',
        RULES,
    ),
]
