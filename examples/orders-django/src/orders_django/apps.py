"""The application. It makes no client here: what loads it may fork workers afterwards, or only migrate."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders and their bills."""

    name = "orders_django"
