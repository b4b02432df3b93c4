"""Read a prompt of ComfyUI's history: its times, and what its workflow's graph makes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    outputs = parts[4] if len(parts) > 4 and isinstance(parts[4], list) else []
    return record | _Workflow(graph, [str(output) for output in outputs]).record()


class _Workflow:
    """A workflow's graph, followed from its samplers along the links of their inputs.

    Attributes:
        ends: ids of the outputs that were asked for; without a sampler behind them, of nodes that no other follows.
        live: the nodes that lead to an end, each after those that it depends on.
        samplers: those of them that sample.
        read: inputs that are in the record, each by the id of its node's inputs and its name.
    """

    def __init__(self, graph: Graph, outputs: Sequence[str]) -> None:
        self.graph = graph
        values = (value for node in map(_node, graph.values()) if node for value in node["inputs"].values())
        linked = {str(value[0]) for value in values if self._linked(value)}
        for self.ends in ([name for name in outputs if name in graph], [name for name in graph if name not in linked]):
            self.live = self._leading()
            self.samplers = [node for node in self.live if _samples(node)]
            if self.ends and self.samplers:
                break
        self.read: set[tuple[int, str]] = set()

    def record(self) -> dict[str, Any]:
        """Return size, images, steps, seed, guidance, prompts, models and add-ons, as far as the graph says.

        Inputs that are not read are in `nodes`, by the class of their node.
        """
        record = self._pictures()
        steps = [self._steps(sampler) for sampler in self.samplers]
        if steps and None not in steps:
            record["steps"] = sum(step for step in steps if step is not None)
        if len(steps) > 1:
            record["samplers"] = len(steps)
            scales = (self._upscale(sampler) for sampler in self.samplers[1:])
            record["upscaled"] = next((scale for scale in scales if scale is not None), None)
        sampler = self.samplers[0] if self.samplers else {"inputs": {}}
        inputs = sampler["inputs"]
        seed = self._input(sampler, ("seed", "noise_seed"))
        record["seed"] = self._first(inputs.get("noise"), "noise_seed") if seed is None else seed
        guider = self._linked(inputs.get("guider"))
        record["guidance"] = (
            self._input(sampler, ("cfg",)) if "cfg" in inputs else self._first(inputs.get("guider"), "cfg")
        )
        for name, link in (("denoise", "sigmas"), ("sampler_name", "sampler"), ("scheduler", "sigmas")):
            record[name] = self._input(sampler, (name,)) or self._first(inputs.get(link), name)
        record |= self._size(inputs.get("latent_image"))
        source = inputs if "positive" in inputs else guider.get("inputs", {})
        positive = source.get("positive", source.get("conditioning"))
        if positive is None:  # a graph without links
            texts = [self._text(node) for node in self.live if "textencode" in _kind(node)]
            record["prompt"] = texts[0] if texts else None
            record["negative_prompt"] = texts[1] if len(texts) > 1 else None
        else:
            record["distilled_guidance"] = self._first(positive, "guidance")
            record["prompt"] = self._told(positive, "positive")
            record["negative_prompt"] = self._told(source.get("negative"), "negative")
        record |= self._models(inputs.get("model", guider.get("inputs", {}).get("model")))
        left: dict[str, dict[str, Any]] = {}
        for node in self.live:
            for name, value in node["inputs"].items():
                if (id(node["inputs"]), name) not in self.read and not self._linked(value):
                    left.setdefault(node["class_type"], {})[name] = value
        return record | {"nodes": left}

    def _pictures(self) -> dict[str, Any]:
        """Return the number of images that are edited or animated, and of those that only guide a ControlNet."""
        every, edited = (
            [node for node in nodes if "loadimage" in _kind(node) and "mask" not in _kind(node)]
            for nodes in (self.live, self._leading(with_control=False))
        )
        for node in every:
            self._input(node, ("image",))
        return {"input_images": len(edited), "control_images": len(every) - len(edited) or None}

    def _models(self, model: Any) -> dict[str, Any]:
        """Return the base model and the LoRAs of the first sampler, and the ControlNets."""
        models = self.live if model is None else list(self._upstream(model))
        files = (
            self._input(node, (name,))
            for node in models
            for name in ("ckpt_name", "unet_name", "model_name", "diffusion_model")
            if isinstance(node["inputs"].get(name), str)
        )
        nets = [self._input(node, ("control_net_name",)) for node in self.live if "control_net_name" in node["inputs"]]
        is_unknown = not nets and any("control" in _kind(node) for node in self.live)
        return {
            "base_model": next(files, None),
            "loras": [self._input(node, ("lora_name",)) for node in models if "lora_name" in node["inputs"]],
            "controlnets": None if is_unknown else nets,
        }

    def _upscale(self, sampler: Mapping[str, Any]) -> Any:
        """Return by how much an image grows from the sampler before to this one, None if it does not."""
        scale = None
        for node in self._upstream(sampler["inputs"].get("latent_image"), to=_samples):
            if _samples(node):
                return scale
            if "scale" in _kind(node) and scale is None:
                sides = [self._input(node, (name,)) for name in ("width", "height")]
                scale = self._input(node, ("scale_by", "upscale_by")) or (
                    node["class_type"] if None in sides else "x".join(map(str, sides))
                )
        return None

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
        """Return size, frames and images of the nearest node that makes an empty latent, which others may repeat."""
        repeats = 1
        for node in self.live if latent is None else self._upstream(latent):
            inputs = node["inputs"]
            if "repeat" in _kind(node):
                amount = self._input(node, ("amount",))
                repeats *= amount if isinstance(amount, int) else 1
            if {"width", "height"} <= inputs.keys() and (
                "batch_size" in inputs or "latent" in node["class_type"].lower()
            ):
                frames = self._input(node, ("length", "video_frames", "num_frames", "frames"))
                images = self._input(node, ("batch_size", "amount"))
                return {
                    "width": self._input(node, ("width",)), "height": self._input(node, ("height",)), "frames": frames,
                    "images": images * repeats if isinstance(images, int) else images,
                }  # fmt: skip
        return {"images": repeats} if repeats > 1 else {}

    def _told(self, link: Any, side: str) -> str | None:
        """Return the texts that a conditioning is made of, None if it is set to zero.

        Args:
            side: "positive" or "negative": of nodes that hand on both, the one that is meant.
        """
        texts, waiting, seen = [], [(link, side)], set()
        while waiting:
            link, side = waiting.pop(0)
            node = self._linked(link)
            if not node or _samples(node) or (str(link[0]), link[1]) in seen:
                continue
            seen.add((str(link[0]), link[1]))
            inputs = node["inputs"]
            if "zeroout" in _kind(node):
                return None
            if "textencode" in _kind(node):
                texts.append(self._text(node))
            elif {"positive", "negative"} <= inputs.keys():
                if link[1] in (0, 1) and "model" not in inputs:  # such nodes hand on the positive first
                    side = ("positive", "negative")[link[1]]
                if isinstance(inputs[side], str):
                    texts.append(self._input(node, (side,)))
                waiting.append((inputs[side], side))
            else:
                names = [name for name in inputs if "cond" in name] or list(inputs)
                waiting.extend((inputs[name], side) for name in names)
        return ", ".join(dict.fromkeys(text for text in texts if text is not None)) or None

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
                self.read.add((id(node["inputs"]), name))
                return value
        return None

    def _first(self, link: Any, name: str) -> Any:
        """Return the named input of the nearest node upstream that has it."""
        return next((self._input(node, (name,)) for node in self._upstream(link) if name in node["inputs"]), None)

    def _upstream(self, link: Any, to: Callable[[dict[str, Any]], bool] = lambda _: False) -> Iterator[dict[str, Any]]:
        """Yield the nodes that a link leads to, nearest first, each once, and none behind those of ``to``."""
        waiting, seen = [link], set()
        while waiting:
            link = waiting.pop(0)
            node = self._linked(link)
            if node and str(link[0]) not in seen:
                seen.add(str(link[0]))
                yield node
                if not to(node):
                    waiting.extend(value for value in node["inputs"].values() if isinstance(value, list))

    def _leading(self, *, with_control: bool = True) -> list[dict[str, Any]]:
        """Return the nodes that lead to the ends, each after those that it depends on.

        Args:
            with_control: whether those count that lead only to the image of a ControlNet.
        """
        order, seen = [], set()
        waiting = [(name, False) for name in reversed(self.ends or list(self.graph))]
        while waiting:
            name, is_done = waiting.pop()
            node = _node(self.graph.get(name))
            if is_done:
                order.append(node)
            elif node and name not in seen:
                seen.add(name)
                waiting.append((name, True))
                links = [
                    value
                    for key, value in node["inputs"].items()
                    if self._linked(value) and (with_control or key != "image" or "control_net" not in node["inputs"])
                ]
                waiting.extend((str(link[0]), False) for link in reversed(links))
        return order

    def _linked(self, link: Any) -> dict[str, Any]:
        """Return the node that a link names, {} if it is none."""
        if not (isinstance(link, list) and len(link) == 2 and isinstance(link[0], str | int)):
            return {}
        return _node(self.graph.get(str(link[0])))


def _kind(node: Mapping[str, Any]) -> str:
    return str(node["class_type"].lower())


def _samples(node: Mapping[str, Any]) -> bool:
    return "sampler" in _kind(node) and bool({"steps", "sigmas"} & node["inputs"].keys())


def _node(node: Any) -> dict[str, Any]:
    """Return a node with a class and inputs, {} for anything else."""
    if not isinstance(node, dict) or not isinstance(node.get("inputs"), dict):
        return {}
    return {"class_type": str(node.get("class_type", "")), "inputs": node["inputs"]}
