"""Read a prompt of ComfyUI's history: its times, and what its workflow's graph makes."""

from collections.abc import Iterator, Mapping
from typing import Any

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import excerpt

Graph = Mapping[str, Any]
"""Id of a node -> {"class_type": ..., "inputs": {name: value or [id of another node, number of its output]}}."""

TEXTS = ("text", "prompt", "positive", "clip_l", "t5xxl", "text_g", "string", "value")
"""Inputs that hold a text, in nodes that encode or pass one."""

LITERALS = ("value", "int", "float", "number", "seed", "noise_seed", "text", "string", "steps")
"""Inputs of nodes that hand on a value."""

LINKS = 3
"""Nodes in a row that hand on a value, at most; each may name others in nine inputs."""

MAX_NODES = 2000
"""Nodes of a workflow, at most; those of people have hundreds."""


def of_prompt(name: str, entry: Any, where: str) -> dict[str, Any]:
    """Return a prompt of the history as a flat record; times in milliseconds since 1970.

    Raises TraceError if the entry has no workflow in the form of the API.
    """
    prompt = entry.get("prompt") if isinstance(entry, dict) else None
    parts = prompt if isinstance(prompt, list) else [None, name, prompt, {}]
    graph = parts[2] if len(parts) > 2 else None
    if not isinstance(graph, dict) or not all(isinstance(node, dict) for node in graph.values()):
        raise TraceError(
            f"{where}: found {excerpt(repr(entry), 60)}, expected an entry of ComfyUI's /history with the prompt"
            " [number, id, workflow, extra data, outputs]; save what GET /history answers"
        )
    if len(graph) > MAX_NODES:
        raise TraceError(f"{where}: found {len(graph):,} nodes in a workflow, expected at most {MAX_NODES:,}; drop it")
    extra = parts[3] if len(parts) > 3 and isinstance(parts[3], dict) else {}
    status = entry.get("status") if isinstance(entry.get("status"), dict) else {}
    times = {
        message[0]: message[1]["timestamp"]
        for message in status.get("messages") or []
        if isinstance(message, list) and len(message) > 1 and isinstance(message[1], dict) and "timestamp" in message[1]
    }
    ended = next(
        (times[word] for word in ("execution_success", "execution_error", "execution_interrupted") if word in times),
        None,
    )
    start = times.get("execution_start")
    record = {
        "request_id": name, "user_id": extra.get("client_id"), "create_time": extra.get("create_time"),
        "execution_start": start, "ended": ended, "status": status.get("status_str"),
    }  # fmt: skip
    if isinstance(start, int | float) and isinstance(ended, int | float):
        record["ended - execution_start"] = ended - start
    return record | _Workflow(graph).record()


class _Workflow:
    """A workflow's graph, followed from its samplers along the links of their inputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.samplers = [node for node in self._nodes("sampler") if {"steps", "sigmas"} & node["inputs"].keys()]

    def record(self) -> dict[str, Any]:
        """Return size, images, steps, seed, guidance, prompts and models, as far as the graph says."""
        record: dict[str, Any] = {"input_images": len(self._nodes("loadimage", but="mask"))}
        steps = [self._steps(sampler) for sampler in self.samplers]
        if steps and None not in steps:
            record["steps"] = sum(step for step in steps if step is not None)
        if len(steps) > 1:
            record["samplers"] = len(steps)
        sampler = self.samplers[0] if self.samplers else {"inputs": {}}
        inputs = sampler["inputs"]
        record["seed"] = self._input(sampler, ("seed", "noise_seed")) or self._first(inputs.get("noise"), "noise_seed")
        guider = self._linked(inputs.get("guider"))
        record["guidance"] = (
            self._input(sampler, ("cfg",)) if "cfg" in inputs else self._first(inputs.get("guider"), "cfg")
        )
        record["denoise"] = self._input(sampler, ("denoise",))
        record |= self._size(inputs.get("latent_image"))
        source = inputs if "positive" in inputs else guider.get("inputs", {})
        positive = source.get("positive", source.get("conditioning"))
        texts = [self._text(node) for node in self._nodes("textencode")]
        if positive is None:  # a graph without links
            record["prompt"] = texts[0] if texts else None
            record["negative_prompt"] = texts[1] if len(texts) > 1 else None
        else:
            record["prompt"], record["negative_prompt"] = self._told(positive), self._told(source.get("negative"))
        model = inputs.get("model", guider.get("inputs", {}).get("model"))
        models = list(self._upstream(model)) if model is not None else list(self._all())
        names = ("ckpt_name", "unet_name", "model_name", "diffusion_model")
        record["base_model"] = next(
            (node["inputs"][key] for node in models for key in names if isinstance(node["inputs"].get(key), str)), None
        )
        record["loras"] = [
            node["inputs"]["lora_name"] for node in models if isinstance(node["inputs"].get("lora_name"), str)
        ]
        return record

    def _steps(self, sampler: Mapping[str, Any]) -> int | None:
        """Return the steps that a sampler runs: all of them, whatever `denoise` is, or a stretch of them."""
        steps = self._input(sampler, ("steps",))
        if steps is None:
            steps = self._first(sampler["inputs"].get("sigmas"), "steps")
        if isinstance(steps, bool) or not isinstance(steps, int | float):
            return None
        first, last = (self._input(sampler, (name,)) for name in ("start_at_step", "end_at_step"))
        first = first if isinstance(first, int | float) else 0
        last = last if isinstance(last, int | float) else steps
        return max(0, int(min(last, steps)) - int(first))

    def _size(self, latent: Any) -> dict[str, Any]:
        """Return size, frames and images of the nearest node that makes an empty latent."""
        candidates = self._upstream(latent) if latent is not None else self._all()
        for node in candidates:
            inputs = node["inputs"]
            if {"width", "height"} <= inputs.keys() and (
                "batch_size" in inputs or "latent" in node["class_type"].lower()
            ):
                frames = self._input(node, ("length", "video_frames", "num_frames", "frames"))
                return {
                    "width": self._input(node, ("width",)), "height": self._input(node, ("height",)), "frames": frames,
                    "images": self._input(node, ("batch_size", "amount")),
                }  # fmt: skip
        return {}

    def _told(self, link: Any) -> str | None:
        """Return the texts that a conditioning is made of, None if it is set to zero."""
        texts = []
        for node in self._upstream(link):
            kind = node["class_type"].lower()
            if "zeroout" in kind:
                return None
            if "textencode" in kind and (text := self._text(node)) is not None:
                texts.append(text)
        return ", ".join(dict.fromkeys(texts)) if texts else None

    def _text(self, node: Mapping[str, Any]) -> str | None:
        text = self._input(node, TEXTS)
        return text if isinstance(text, str) else None

    def _input(self, node: Mapping[str, Any], names: tuple[str, ...], depth: int = LINKS) -> Any:
        """Return the first of the named inputs that a node has, through nodes that hand on a value."""
        for name in names:
            value = node["inputs"].get(name)
            if isinstance(value, list):
                linked = self._linked(value)
                value = self._input(linked, (name, *LITERALS), depth - 1) if linked and depth else None
            if value is not None and not isinstance(value, dict):
                return value
        return None

    def _first(self, link: Any, name: str) -> Any:
        """Return the named input of the nearest node upstream that has it."""
        return next((self._input(node, (name,)) for node in self._upstream(link) if name in node["inputs"]), None)

    def _upstream(self, link: Any) -> Iterator[dict[str, Any]]:
        """Yield the nodes that a link leads to, nearest first, each once."""
        waiting, seen = [link], set()
        while waiting:
            link = waiting.pop(0)
            node = self._linked(link)
            if node and str(link[0]) not in seen:
                seen.add(str(link[0]))
                yield node
                waiting.extend(value for value in node["inputs"].values() if isinstance(value, list))

    def _linked(self, link: Any) -> dict[str, Any]:
        """Return the node that a link names, {} if it is none."""
        if not (isinstance(link, list) and len(link) == 2 and isinstance(link[0], str | int)):
            return {}
        return _node(self.graph.get(str(link[0])))

    def _all(self) -> Iterator[dict[str, Any]]:
        return (found for node in self.graph.values() if (found := _node(node)))

    def _nodes(self, word: str, but: str = "\0") -> list[dict[str, Any]]:
        """Return the nodes with a word in the name of their class, in the order of the graph."""
        kinds = ((node, node["class_type"].lower()) for node in self._all())
        return [node for node, kind in kinds if word in kind and but not in kind]


def _node(node: Any) -> dict[str, Any]:
    """Return a node with a class and inputs, {} for anything else."""
    if not isinstance(node, dict) or not isinstance(node.get("inputs"), dict):
        return {}
    return {"class_type": str(node.get("class_type", "")), "inputs": node["inputs"]}
