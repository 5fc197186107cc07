"""The tables of the database: orders and bills."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    article = models.CharField(max_length=100)


class Bill(models.Model):
    """The bill of an order. An order has at most one bill, even if its message is delivered more than once."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
