"""Retention as a plugin: deletes files by the policy of :mod:`flintmq.core.retention`, watches the disks, gives pages back."""
