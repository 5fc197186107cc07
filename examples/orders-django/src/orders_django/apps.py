"""The configuration of the Django application. The configuration starts no client, because a server may fork workers after it
has loaded the application."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """The configuration of the Django application that stores orders and bills."""

    name = "orders_django"
