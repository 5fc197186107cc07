"""``python -m orders_django migrate``, ``python -m orders_django bill_orders``: what ``manage.py`` is elsewhere."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orders_django.settings")
execute_from_command_line(sys.argv)
