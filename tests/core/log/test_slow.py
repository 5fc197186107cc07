"""A disk that hesitates is seen in the log, in RocketMQ's words, before anybody asks why sends are slow."""

from __future__ import annotations
