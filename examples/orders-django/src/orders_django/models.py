"""What the database holds."""

from django.db import models


class Order(models.Model):
    """What a customer wants."""

    article = models.CharField(max_length=100)


class Bill(models.Model):
    """A bill of an order. There is one at most, however often the message comes."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
