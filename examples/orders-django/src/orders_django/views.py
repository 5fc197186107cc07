"""The view of the Django application that accepts orders."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders_django.messages import order_placed
from orders_django.models import Order


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order, and send a message after the order's transaction is committed. After a rollback no message is sent."""
    with transaction.atomic():
        order = Order.objects.create(article=request.POST["article"])
        transaction.on_commit(partial(order_placed, order.pk))
        if not order.article:
            transaction.set_rollback(True)
            return JsonResponse({"error": "an order needs an article"}, status=400)
    return JsonResponse({"id": order.pk}, status=202)
