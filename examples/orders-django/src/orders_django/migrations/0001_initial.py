"""The first migration: it creates the tables of orders and bills."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The first migration of the database: creates the tables of orders and bills."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("article", models.CharField(max_length=100)),
            ],
        ),
        migrations.CreateModel(
            name="Bill",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "order",
                    models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to="orders_django.order"),
                ),
            ],
        ),
    )
