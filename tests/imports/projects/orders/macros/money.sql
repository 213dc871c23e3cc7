{% macro euros(column, digits=2) -%}
round({{ column }} / 100.0, {{ digits }})
{%- endmacro %}

{% macro key_of(columns) -%}
md5({% for each in columns %}coalesce(cast({{ each }} as varchar), '_null_'){% if not loop.last %} || '-' || {% endif %}{% endfor %})
{%- endmacro %}
