# proxy/: one executable per module. baton-engine has modules of the same
# names, hence the prefix.
foreach(module request fault filter headers engine auth cors quota bootstrap blame
        pool_local)
  baton_unit(test_proxy_${module} LIBS baton_proxy)
endforeach()

set(support ${PROJECT_SOURCE_DIR}/tests/support)
baton_unit(test_names LIBS baton_proxy
           SOURCES ${support}/pair.c ${support}/dns.c)
baton_unit(test_roster LIBS baton_proxy SOURCES ${support}/pair.c)
foreach(module route attempt alone)
  baton_unit(test_proxy_${module} LIBS baton_proxy SOURCES ${support}/sides.c)
endforeach()
baton_unit(test_proxy_relay LIBS baton_proxy SOURCES ${support}/fake_sink.c)
# The test stands in for control_orders.c.
baton_unit(test_proxy_admission LIBS baton_proxy)
# fake_leg.c and the test itself stand in for leg.c and control.c.
baton_unit(test_proxy_exchange LIBS baton_proxy
           SOURCES ${support}/fake_sink.c ${support}/fake_leg.c)
