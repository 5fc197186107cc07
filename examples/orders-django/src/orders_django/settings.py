"""The project's settings. Settings that differ between machines come from environment variables."""

import os

SECRET_KEY = os.environ.get("ORDERS_SECRET_KEY", "for development only")
DEBUG = False
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["orders_django.apps.OrdersConfig"]
ROOT_URLCONF = "orders_django.urls"
WSGI_APPLICATION = "orders_django.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("ORDERS_DATABASE", "orders.sqlite3"),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
FLINTMQ_NAME_SERVERS = os.environ.get("ORDERS_NAME_SERVERS", "127.0.0.1:9876")
