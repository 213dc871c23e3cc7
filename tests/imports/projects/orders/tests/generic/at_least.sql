{% test at_least(model, column_name, least) %}
select * from {{ model }} where {{ column_name }} < {{ least }}
{% endtest %}
