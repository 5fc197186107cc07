"""The faults of a broker that a test can script: faults of syncs, the disk, answers, the network and the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.testing.fault import Fault
from flintmq.testing.faulty_disk import LOG, FaultyDisk, FullDisk, SyncFault
from flintmq.testing.wire import AnswerFault, Cut, FaultyWire

if TYPE_CHECKING:
    from flintmq.testing.embedded import EmbeddedBroker


class Faults:
    """The faults of one :class:`~flintmq.testing.embedded.EmbeddedBroker`. Thread-safe.

    A method that scripts a fault returns a :class:`~flintmq.testing.fault.Fault`, which counts how often the fault has happened
    (``hits``, ``wait()``). The fault ends with ``undo()`` or with its ``with`` statement. All faults end with the broker.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.disk = FaultyDisk()
        """The disk to which the embedded broker writes."""
        self.wire = FaultyWire()
        """The proxy through which clients connect to the embedded broker."""
        self._master_wire: FaultyWire | None = None
        self._crashes = 0

    # --- methods that the embedded broker calls ---

    def master_wire(self, host: str, port: int) -> FaultyWire:
        """Return the proxy through which a slave connects to its master's replication port."""
        if self._master_wire is None:
            self._master_wire = FaultyWire()
        self._master_wire.target = (host, port)
        return self._master_wire

    def close(self) -> None:
        """Close all connections to the broker that pass through this object. Idempotent."""
        for wire in (self.wire, self._master_wire):
            if wire is not None:
                wire.close()

    # --- faults of the disk ---

    def fail_sync(self, nth: int = 1, *, within: str = LOG, for_ever: bool = False) -> Fault:
        """Make a sync fail with EIO: the n-th sync after this call. The messages that wait for the sync are never acknowledged,
        and the store is fenced.

        Args:
            nth: number of the sync that fails; 1 is the next sync.
            within: name of a folder; only syncs of files in folders with this name are counted. The default is the folder of
                the commit log. If the name is empty, syncs of all files are counted.
            for_ever: whether every later sync fails, too.
        """
        return self.disk.script(SyncFault(within, nth=nth, for_ever=for_ever))

    def slow_sync(self, delay_s: float, nth: int = 1, *, within: str = LOG, for_ever: bool = False) -> Fault:
        """Make a sync take ``delay_s`` seconds longer, in real time: the n-th sync after this call. ``undo`` ends the delay.

        See :meth:`fail_sync` for the other parameters.
        """
        return self.disk.script(SyncFault(within, delay_s, nth=nth, for_ever=for_ever))

    def fill_disk(self) -> Fault:
        """Fill the disk until the fault is undone: no file can be created or grow, and the broker sees no free space."""
        return self.disk.fill(FullDisk(for_ever=True))

    # --- faults of the network ---

    def drop_answer(self, code: int, nth: int = 1, *, for_ever: bool = False) -> Fault:
        """Drop the answer to the n-th request with a code after this call. The broker carries out the request, but the client
        gets no answer.

        Args:
            code: a :class:`~flintmq.remoting.wire.codes.RequestCode`; a plain send is SEND_MESSAGE_V2.
            nth: number of the request; 1 is the next request with the code.
            for_ever: whether the answers to all later requests of the code are lost, too.
        """
        return self.wire.script(AnswerFault(int(code), nth=nth, for_ever=for_ever))

    def delay_answer(self, code: int, delay_s: float, nth: int = 1, *, for_ever: bool = False) -> Fault:
        """Delay the answer to the n-th request with a code by ``delay_s``, in real time. See :meth:`drop_answer`."""
        return self.wire.script(AnswerFault(int(code), delay_s, nth=nth, for_ever=for_ever))

    def disconnect(self, code: int | None = None, nth: int = 1) -> Fault | None:
        """End every connection to the broker now. If a code is given, end only the connection of the n-th request with the
        code, in place of the request's answer."""
        if code is None:
            self.wire.disconnect()
            return None
        return self.wire.script(AnswerFault(int(code), disconnects=True, nth=nth))

    def cut(self, *, silently: bool = False) -> Fault:
        """Let no bytes pass between clients and the broker until the fault is undone.

        Args:
            silently: True: connections stay open and no bytes pass, as when a network is split; False: open connections end,
                and new connections end at once.
        """
        return self.wire.cut(Cut(silently))

    def cut_master(self, *, silently: bool = False) -> Fault:
        """Let no bytes pass between this slave and its master until the fault is undone. See :meth:`cut`.

        Raises:
            ValueError: the broker is not a slave of an EmbeddedCluster.
        """
        if self._master_wire is None:
            raise ValueError("this broker has no master: only slaves of an EmbeddedCluster can be cut off from theirs")
        return self._master_wire.cut(Cut(silently))

    # --- faults of the broker's process ---

    def crash(self, *, tear: bool = False) -> None:
        """Cut the power of the broker: connections end, and unsynced data is lost. Then the broker starts again, at the same
        address.

        Args:
            tear: whether unsynced writes to the commit log survive the power cut. If they survive, only the first half of the
                last write is kept.

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
        """Stop the broker in good order, and start the broker again at the same address."""
        self._broker.stop()
        self._broker.start()
