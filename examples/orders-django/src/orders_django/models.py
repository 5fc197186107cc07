"""The tables of the database: orders and bills."""

from django.db import models


class Order(models.Model):
    """The table of orders; a row is one order of a customer."""

    article = models.CharField(max_length=100)


class Bill(models.Model):
    """The table of bills. An order has at most one bill, even if the order's message is delivered more than once."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
