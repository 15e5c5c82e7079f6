# Settings: the table in common/, the proxy's table, the example files.

baton_unit(test_conf LIBS bt_common)

# The example files are right, and the complete one is what the program prints.
if(TARGET baton-proxy)
  foreach(module config config_check config_pools)
    baton_unit(test_${module} LIBS baton_proxy
               SOURCES ${PROJECT_SOURCE_DIR}/tests/support/settings.c)
  endforeach()
  add_test(NAME conf.examples
      COMMAND bash ${PROJECT_SOURCE_DIR}/tests/lint/tables.sh
              $<TARGET_FILE:baton-proxy>)
  set_tests_properties(conf.examples PROPERTIES LABELS unit TIMEOUT 60)
endif()
