"""The application object that WSGI servers load, such as ``gunicorn orders_django.wsgi``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orders_django.settings")
application = get_wsgi_application()
