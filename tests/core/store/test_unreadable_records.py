"""A store may hold records that nobody else can read: an earlier FlintMQ stored lengths without a sign. RocketMQ ends its log
at the first of them; here they are taken out, kept, and told of, and nothing behind them is lost."""

from __future__ import annotations
