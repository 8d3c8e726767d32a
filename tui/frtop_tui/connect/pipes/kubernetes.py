"""`k8s:[NAMESPACE/]SELECTOR[:CONTAINER]`: the pods of a job, reached by `kubectl exec`.

From kubectl's reference:

* get, `-l`: "Selector (label query) to filter on, supports '=', '==', '!=', 'in', 'notin'."
* exec, `-i`: "Pass stdin to the container."
* exec, `-c`: "Container name. If omitted, use the kubectl.kubernetes.io/default-container
  annotation for selecting the container to be attached or the first container in the pod will be
  chosen".
* of a pod: `phase` is `Running` when it "has been bound to a node, and all of the containers have
  been created. At least one container is still running, or is in the process of starting or
  restarting."
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct, field

from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.lookup import output_of
from frtop_tui.errors import FrtopError, NoJob, Unreachable, UsageError

PREFIX: Final = "k8s:"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POD: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SELECTOR: Final = re.compile(r"[A-Za-z0-9_.,=!()/ -]{1,1000}")
_EXAMPLE: Final = "--ssh k8s:NAMESPACE/app=train, or k8s:app=train:CONTAINER"
_WITHOUT: Final = "install kubectl, or name another command: --via 'COMMAND {host} sh'"


class _Status(Struct, frozen=True):
    name: str = ""
    ready: bool = False


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_Status, ...] | None = None


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata = field(default_factory=_Metadata)
    status: _PodStatus = field(default_factory=_PodStatus)


class _Pods(Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Pods:
    """A place with many hosts: each pod counts as a host with the pod's name."""

    selector: str
    namespace: str = ""
    container: str = ""

    @property
    def name(self) -> str:
        """As the operator wrote it."""
        return (
            PREFIX
            + (f"{self.namespace}/" if self.namespace else "")
            + self.selector
            + (f":{self.container}" if self.container else "")
        )

    doing = "asking kubectl for its pods"

    def find(self) -> list[PipeEndpoint]:
        """Asks kubectl; blocks.

        Raises:
            FrtopError: no pod runs, or kubectl cannot be asked.
        """
        where = ("-n", self.namespace) if self.namespace else ()
        said = output_of(
            ("kubectl", "get", "pods", *where, "-l", self.selector, "-o", "json"), _WITHOUT
        )
        pods = read_pods(said)
        found = [one for pod in pods if (one := self._endpoint(pod)) is not None]
        if not found:
            raise self._none(pods)
        return found

    def _endpoint(self, pod: _Pod) -> PipeEndpoint | None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        container = self._container(pod)
        if pod.status.phase != "Running" or not container or not _POD.fullmatch(name):
            return None
        where = ("-n", namespace) if _LABEL.fullmatch(namespace) else ()
        command = ("kubectl", "exec", *where, "-i", name, "-c", container, "--", "sh")
        return PipeEndpoint(host=name, commands=(command,), shown=f"kubectl {container}")

    def _container(self, pod: _Pod) -> str:
        """The container that was named, the pod's default, or its first; "" unless it is ready."""
        ready = [
            one.name
            for one in pod.status.container_statuses or ()
            if one.ready and _LABEL.fullmatch(one.name)
        ]
        default = (pod.metadata.annotations or {}).get(DEFAULT_CONTAINER, "")
        wanted = self.container or (default if default in ready else "")
        if wanted:
            return wanted if wanted in ready else ""
        return ready[0] if ready else ""

    def _none(self, pods: tuple[_Pod, ...]) -> FrtopError:
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" with a ready container {self.container}" if self.container else ""
        state = ", ".join(sorted({pod.status.phase for pod in pods if pod.status.phase}))
        text = f"no running pod{which} matches {self.selector}{where}"
        if pods:
            text += f" ({len(pods)} match: {state})"
        return NoJob(text, f"kubectl get pods -A -l '{self.selector}' shows where they are")


def parse(spec: str) -> Pods:
    """Reads `k8s:[NAMESPACE/]SELECTOR[:CONTAINER]`; raises `UsageError`.

    A label's own prefix has a slash, too: what precedes the first slash is a namespace if it can be
    one, which a prefix with a dot cannot.
    """
    rest, _, container = spec.removeprefix(PREFIX).partition(":")
    namespace, slash, selector = rest.partition("/")
    if not slash or not _LABEL.fullmatch(namespace):
        namespace, selector = "", rest
    if not _SELECTOR.fullmatch(selector) or selector.startswith("-"):
        raise UsageError(f"{spec!r} has no label selector", _EXAMPLE)
    if container and not _LABEL.fullmatch(container):
        raise UsageError(f"{container!r} is not a container's name", _EXAMPLE)
    return Pods(selector, namespace, container)


def read_pods(said: str) -> tuple[_Pod, ...]:
    """The pods in what `kubectl get pods -o json` prints; raises `Unreachable`."""
    try:
        return msgspec.json.decode(said, type=_Pods).items
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable(
            f"kubectl did not print a list of pods: {error}", "kubectl version"
        ) from error
