"""Runs a management command, such as ``python -m orders_django migrate``; it replaces Django's ``manage.py``."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orders_django.settings")
execute_from_command_line(sys.argv)
