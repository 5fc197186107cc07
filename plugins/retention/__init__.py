"""The plugin that deletes old files by the policy of :mod:`flintmq.core.retention`, checks the disks, and releases memory
pages."""
