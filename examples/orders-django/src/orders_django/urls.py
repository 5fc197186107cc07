"""The URLs that the service answers."""

from django.urls import path

from orders_django.views import place_order

urlpatterns = [path("orders", place_order)]
