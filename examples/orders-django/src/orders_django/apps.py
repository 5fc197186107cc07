"""The application's configuration. It starts no client, because a server may fork workers after loading it."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """The application of orders and their bills."""

    name = "orders_django"
