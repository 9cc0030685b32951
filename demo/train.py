"""Owns the training of the demo's four adapters: `python -m demo.train [TENANT ...] [--steps N]`.

LoRA of rank 8 on the query and value projections, on CPU in float32, saved in bfloat16 to `demo/adapters/TENANT`.
The loss counts the summary only. Training stops early once the loss is small and every validation ticket comes out
word for word. Validation tickets are held out, and are not among the ones the demo submits first.
"""

import argparse
import math
import random
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo.base_model import BASE_NAME, ensure_base
from demo.tickets import TENANTS, DemoTenant, Ticket, chat_messages, held_out_tickets, training_tickets

ADAPTERS_DIR = Path(__file__).parent / "adapters"
THREADS = 2
LEARNING_RATE = 1e-3
WARMUP_STEPS = 5
CHECK_EVERY = 10
LOSS_WORTH_A_CHECK = 0.03
VALIDATION_TICKETS = 12
_BATCHES_SORTED_TOGETHER = 4
_END_OF_TURN = "<|im_end|>"
_IGNORED = -100

Encoded = tuple[list[int], list[int]]


def train(tenant: DemoTenant, base: Path, steps: int, batch: int, folder: Path) -> float:
    """Train one tenant's adapter into `folder`; return the share of validation tickets that came out exactly."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = _with_lora(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32))
    exact, started = 0.0, time.monotonic()
    for step, loss in enumerate(
        _losses(model, _batches(tenant, tokenizer, batch), steps, tokenizer.pad_token_id), start=1
    ):
        if step % 5 == 0:
            print(f"{tenant.id} step {step} loss {loss:.4f} at {time.monotonic() - started:.0f} s", flush=True)
        if step == steps or (step % CHECK_EVERY == 0 and loss < LOSS_WORTH_A_CHECK):
            exact = _share_exact(model, tokenizer, tenant)
            print(f"{tenant.id} step {step} exact {exact:.3f}", flush=True)
            _save(model, folder)
            if exact == 1.0:
                break
    return exact


def _losses(model: Any, batches: Iterator[list[Encoded]], steps: int, pad_id: int) -> Iterator[float]:
    """Take one optimizer step for each value asked for; yield the mean loss of the last five."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_factor(step, steps))
    recent: deque[float] = deque(maxlen=5)
    for _ in range(steps):
        loss = _answer_loss(model, next(batches), pad_id)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent.append(loss.item())
        yield sum(recent) / len(recent)


def _with_lora(model: Any) -> Any:
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def _learning_rate_factor(step: int, steps: int) -> float:
    """Rise over the warm-up, then fall along a cosine to a tenth."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)))


def _batches(tenant: DemoTenant, tokenizer: Any, size: int) -> Iterator[list[Encoded]]:
    """Yield batches of tickets of like length, so that little is spent on padding."""
    tickets = training_tickets(tenant, seed=0)
    order = random.Random(0)
    while True:
        pool = [_encode(tenant, next(tickets), tokenizer) for _ in range(size * _BATCHES_SORTED_TOGETHER)]
        pool.sort(key=lambda encoded: len(encoded[0]))
        batches = [pool[start : start + size] for start in range(0, len(pool), size)]
        order.shuffle(batches)
        yield from batches


def _prompt(tenant: DemoTenant, ticket: Ticket, tokenizer: Any) -> str:
    messages = chat_messages(tenant, ticket.document)
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def _encode(tenant: DemoTenant, ticket: Ticket, tokenizer: Any) -> Encoded:
    """Return a ticket's token ids and labels; the prompt's labels are ignored by the loss."""
    prompt = tokenizer(_prompt(tenant, ticket, tokenizer))["input_ids"]
    answer = tokenizer(ticket.summary + _END_OF_TURN)["input_ids"]
    return prompt + answer, [_IGNORED] * len(prompt) + answer


def _answer_loss(model: Any, batch: list[Encoded], pad_id: int) -> Tensor:
    """Return the mean cross entropy over the summaries' tokens.

    Only the positions that predict a summary's token reach the vocabulary projection: it is a fifth of this model's
    arithmetic, and three positions in four are prompt.
    """
    length = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([row + [pad_id] * (length - len(row)) for row, _ in batch])
    labels = torch.tensor([row + [_IGNORED] * (length - len(row)) for _, row in batch])[:, 1:]
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row, _ in batch])
    causal = model.get_base_model()
    hidden = causal.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
    counted = labels != _IGNORED
    return torch.nn.functional.cross_entropy(causal.lm_head(hidden[counted]), labels[counted])


@torch.no_grad()
def _share_exact(model: Any, tokenizer: Any, tenant: DemoTenant) -> float:
    """Return the share of validation tickets that greedy decoding summarizes word for word."""
    # The last of many, because the demo submits the first.
    tickets = held_out_tickets(tenant, 1000)[-VALIDATION_TICKETS:]
    prompts = [_prompt(tenant, ticket, tokenizer) for ticket in tickets]
    encoded = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    model.eval()
    output = model.generate(**encoded, max_new_tokens=tenant.max_tokens, do_sample=False)
    model.train()
    texts = tokenizer.batch_decode(output[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
    wrong = [(ticket.summary, text) for text, ticket in zip(texts, tickets, strict=True) if text != ticket.summary]
    for wanted, text in wrong:
        print(f"{tenant.id} wanted {wanted!r} got {text!r}", flush=True)
    return 1 - len(wrong) / len(tickets)


def _save(model: Any, folder: Path) -> None:
    """Write the adapter's two files, in bfloat16, naming the base by its public name instead of a local path."""
    trained = get_peft_model_state_dict(model)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in trained.items()}
    config = model.peft_config["default"]
    config.base_model_name_or_path = BASE_NAME
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as scratch:
        fresh = Path(scratch) / folder.name
        config.save_pretrained(str(fresh))
        save_file(tensors, fresh / "adapter_model.safetensors", metadata={"format": "pt"})
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def main() -> None:
    """Train the named tenants' adapters, or all of them, one after another."""
    ids = [tenant.id for tenant in TENANTS]
    parser = argparse.ArgumentParser(description="train the demo's adapters on CPU")
    parser.add_argument("tenants", nargs="*", metavar="TENANT", help=f"of {', '.join(ids)}; default all")
    parser.add_argument("--steps", type=int, default=240, help="at most this many batches")
    parser.add_argument("--batch", type=int, default=8, help="tickets a batch; 4 does where the machine is slow")
    parser.add_argument("--base-dir", type=Path, default=Path(".lorry"), help="where a converted base model is kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.tenants) - set(ids):
        parser.error(f"unknown tenants: {', '.join(sorted(unknown))}")
    torch.set_num_threads(THREADS)
    base = ensure_base(arguments.base_dir)
    for tenant in TENANTS:
        if not arguments.tenants or tenant.id in arguments.tenants:
            train(tenant, base, arguments.steps, arguments.batch, ADAPTERS_DIR / tenant.id)


if __name__ == "__main__":
    main()
