"""What can go wrong with a broker, for a test to say when: syncs, the disk, answers, the network, the process itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.testing.fault import Fault
from flintmq.testing.faulty_disk import LOG, FaultyDisk, FullDisk, SyncFault
from flintmq.testing.wire import AnswerFault, Cut, FaultyWire

if TYPE_CHECKING:
    from flintmq.testing.embedded import EmbeddedBroker


class Faults:
    """The faults of one :class:`~flintmq.testing.embedded.EmbeddedBroker`. Thread-safe.

    A method that scripts something returns a :class:`~flintmq.testing.fault.Fault`, which says whether it has struck
    (``hits``, ``wait()``) and ends with ``undo()``, or with its ``with`` statement. What lasts ends with the broker, too.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.disk = FaultyDisk()
        """The disk that the broker writes to."""
        self.wire = FaultyWire()
        """The way from clients to the broker."""
        self._master_wire: FaultyWire | None = None
        self._crashes = 0

    # --- for the broker that has them ---

    def master_wire(self, host: str, port: int) -> FaultyWire:
        """Return the way from a slave to its master's replication port."""
        if self._master_wire is None:
            self._master_wire = FaultyWire()
        self._master_wire.target = (host, port)
        return self._master_wire

    def close(self) -> None:
        """End everything. Idempotent."""
        for wire in (self.wire, self._master_wire):
            if wire is not None:
                wire.close()

    # --- the disk ---

    def fail_sync(self, nth: int = 1, *, within: str = LOG, for_ever: bool = False) -> Fault:
        """Have the n-th sync from now on fail with EIO: what was not synced is never acknowledged, and the store is fenced.

        Args:
            nth: 1 is the next one.
            within: of files in the folder of this name, the commit log's by default; empty: of any file.
            for_ever: every later one fails, too.
        """
        return self.disk.script(SyncFault(within, nth=nth, for_ever=for_ever))

    def slow_sync(self, delay_s: float, nth: int = 1, *, within: str = LOG, for_ever: bool = False) -> Fault:
        """Have the n-th sync from now on take longer, in real time; ``undo`` lets it go on at once. See :meth:`fail_sync`."""
        return self.disk.script(SyncFault(within, delay_s, nth=nth, for_ever=for_ever))

    def fill_disk(self) -> Fault:
        """Fill the disk until the fault is undone: no file is made, none gets longer, and the broker sees no free space."""
        return self.disk.fill(FullDisk(for_ever=True))

    # --- the network ---

    def drop_answer(self, code: int, nth: int = 1, *, for_ever: bool = False) -> Fault:
        """Have the answer to the n-th request of a code from now on get lost: the broker has done what it was asked to do.

        Args:
            code: a :class:`~flintmq.remoting.wire.codes.RequestCode`; a plain send is SEND_MESSAGE_V2.
            nth: 1 is the next one.
            for_ever: those of all later ones, too.
        """
        return self.wire.script(AnswerFault(int(code), nth=nth, for_ever=for_ever))

    def delay_answer(self, code: int, delay_s: float, nth: int = 1, *, for_ever: bool = False) -> Fault:
        """Have an answer come so much later, in real time. See :meth:`drop_answer`."""
        return self.wire.script(AnswerFault(int(code), delay_s, nth=nth, for_ever=for_ever))

    def disconnect(self, code: int | None = None, nth: int = 1) -> Fault | None:
        """End every connection now; with a code, that of the n-th such request, in place of its answer."""
        if code is None:
            self.wire.disconnect()
            return None
        return self.wire.script(AnswerFault(int(code), disconnects=True, nth=nth))

    def cut(self, *, silently: bool = False) -> Fault:
        """Let nothing pass between clients and the broker until the fault is undone.

        Args:
            silently: connections stay and nothing comes through them, as when a network is split; else they end, and new ones
                end at once.
        """
        return self.wire.cut(Cut(silently))

    def cut_master(self, *, silently: bool = False) -> Fault:
        """Let nothing pass between this slave and its master until the fault is undone. See :meth:`cut`.

        Raises:
            ValueError: the broker is not a slave of an EmbeddedCluster.
        """
        if self._master_wire is None:
            raise ValueError("this broker has no master: only slaves of an EmbeddedCluster can be cut off from theirs")
        return self._master_wire.cut(Cut(silently))

    # --- the process ---

    def crash(self, *, tear: bool = False) -> None:
        """Cut the power: connections end, and what was not synced is lost. Then the broker starts again, at its address.

        Args:
            tear: what was written to the commit log and not synced has got onto the disk, but for half of the last write.

        Raises:
            StoreError: the store does not open again.
        """
        self._crashes += 1
        self.wire.disconnect()
        left = self.disk.lose_power(tears=tear)
        self._broker.abandon()
        self.disk = FaultyDisk(left, boot=f"boot {self._crashes}")
        self._broker.start()

    def restart(self) -> None:
        """Stop the broker in good order, and start it again at its address."""
        self._broker.stop()
        self._broker.start()
