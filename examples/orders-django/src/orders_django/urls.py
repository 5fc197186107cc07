"""The URLs to which the Django application answers."""

from django.urls import path

from orders_django.views import place_order

urlpatterns = [path("orders", place_order)]
