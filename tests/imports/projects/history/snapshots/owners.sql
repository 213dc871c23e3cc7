{% snapshot owner_history %}
{{ config(unique_key='id', strategy='check', check_cols=['owner'], target_schema='main', meta={'dd': {'path': 'snapshots/owner_history/', 'format': 'upsert', 'key': ['dbt_scd_id'], 'columns': {'id': 'int64', 'owner': 'string?', 'dbt_scd_id': 'string', 'dbt_valid_from': 'datetime[us]?', 'dbt_valid_to': 'datetime[us]?'}}}) }}
select id, owner from {{ source('crm', 'accounts') }}
{% endsnapshot %}
