# The agent's modules. Those that need two processes share agent_pair.

set(agent_pair ${PROJECT_SOURCE_DIR}/tests/support/agent_pair.c)

foreach(module pull hold_stress)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/test_${module}.c)
    baton_unit(test_${module} LIBS baton_static SOURCES ${agent_pair})
  endif()
endforeach()
foreach(module hold plan card params region reactor)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/test_${module}.c)
    baton_unit(test_${module} LIBS baton_static)
  endif()
endforeach()
